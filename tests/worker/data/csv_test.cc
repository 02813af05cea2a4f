#include "worker/data/csv.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <tuple>

#include "tests/support/files.h"
#include "tests/worker/data/idx_files.h"

namespace dtrun::worker::csv_test {
namespace {

using dtrun::test::contains;
using Row = std::vector<std::string>;

// `text` in pieces of so many bytes. REQUIRES: it outlives the returned object.
NextPiece pieces_of(const std::string& text, std::size_t size = SIZE_MAX) {
  return [&text, size, offset = std::size_t{0}]() mutable -> Result<std::span<const std::uint8_t>> {
    const auto piece = as_bytes(text).subspan(offset, std::min(size, text.size() - offset));
    offset += piece.size();
    return piece;
  };
}

// The lines' fields; a fault is a last line of its own.
std::vector<Row> lines_of(const std::string& text, std::size_t piece = SIZE_MAX) {
  CsvReader reader(pieces_of(text, piece));
  std::vector<Row> lines;
  for (;;) {
    const auto more = reader.read();
    if (!more.ok()) lines.push_back({more.status().message()});
    if (!more.ok() || !more.value()) return lines;
    Row& row = lines.emplace_back();
    for (std::size_t column = 1; column <= reader.columns(); ++column) row.push_back(reader.field(column));
  }
}

Result<CsvTable> table_of(const std::string& text, const std::string& label = "label", int classes = 3) {
  return parse_csv(pieces_of(text), {.label_column = label, .classes = classes});
}

std::string table_fault(const std::string& text, const std::string& label = "label") {
  const auto table = table_of(text, label);
  if (table.ok()) return "accepted";
  CHECK(table.status().exit_code() == kExitNoInput);
  return table.status().message();
}

TEST_CASE("fields are read as RFC 4180 says, wherever the file's pieces end") {
  const std::string text =
      "\xef\xbb\xbf\"a\",b,\r\n"
      "\"x,y\",\"say \"\"hi\"\"\",\"two\nlines\"\r\n"
      "\n\r\n"
      "1,,\"\"\n"
      "last,line,without end";
  const std::vector<Row> wanted = {
      {"a", "b", ""}, {"x,y", "say \"hi\"", "two\nlines"}, {"1", "", ""}, {"last", "line", "without end"}};
  for (std::size_t piece : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{7}, text.size()}) {
    CAPTURE(piece);
    CHECK(lines_of(text, piece) == wanted);
  }
}

TEST_CASE("wrong quotes are told with line and column") {
  CHECK(lines_of("a,b\n\"1\n2\",\"3\n").back() ==
        Row{"line 2, column 2: its quote is not closed; the file is cut, or a quote is missing"});
  CHECK(lines_of("a\n\"1\n2\",\"3\"4\n").back() ==
        Row{"line 2, column 2: has text behind its closing quote; a quote within quotes is written twice"});
  CHECK(
      contains(lines_of("\"3\"\r4\n").back().front(), "line 1, column 1: has text behind its closing quote"));
  // A line's number counts the line ends within quotes.
  CHECK(lines_of("\"1\n2\"\n\"\n").back() ==
        Row{"line 3, column 1: its quote is not closed; the file is cut, or a quote is missing"});
}

TEST_CASE("a line that has no end is given up before it fills the memory") {
  CHECK(lines_of(std::string(kLongestCsvLine, 'x')).back().front().size() == kLongestCsvLine);
  CHECK(lines_of(std::string(kLongestCsvLine + 1, 'x')).back() ==
        Row{"line 1, column 1: the line goes on after 16,777,216 bytes; is it a table?"});
  CHECK(contains(lines_of("\"" + std::string(kLongestCsvLine + 1, 'x')).back().front(),
                 "the line goes on after"));
  CHECK(lines_of(std::string(kMostCsvColumns - 1, ',')).back().size() == kMostCsvColumns);
  CHECK(lines_of(std::string(kMostCsvColumns, ',')).back() ==
        Row{"line 1, column 1048576: the line has more than 1,048,576 columns; is it a table?"});
}

TEST_CASE("a table's columns are values but for the label's, by name or by number") {
  const std::string text = "x, label ,y\n0.5,2,-1e3\n +3 ,0.0,\"4\"\n";
  for (const char* label : {"label", "2"}) {
    const auto table = table_of(text, label);
    REQUIRE_MESSAGE(table.ok(), table.status().message());
    CHECK(table.value().features == 2);
    CHECK(table.value().values == std::vector<float>{0.5f, -1000.0f, 3.0f, 4.0f});
    CHECK(table.value().labels == std::vector<std::int32_t>{2, 0});
  }
  const auto plain = table_of("1,7\n2,8\n", "1");
  REQUIRE(plain.ok());
  CHECK(plain.value().values == std::vector<float>{7, 8});
  CHECK(plain.value().labels == std::vector<std::int32_t>{1, 2});
}

TEST_CASE("only as many rows are read as wanted") {
  const std::string text = "1,7\n2,8\nx,y\n";
  const auto table = parse_csv(pieces_of(text), {.label_column = "1", .classes = 3, .most_rows = 2});
  REQUIRE(table.ok());
  CHECK(table.value().labels == std::vector<std::int32_t>{1, 2});
}

TEST_CASE("a wrong field is told with line, column and the way out") {
  CHECK(table_fault("x,label\n1,2\n1,3\n") ==
        "line 3, column 2: \"3\" is not a label from 0 to 2; check data.label_column and data.classes");
  CHECK(contains(table_fault("x,label\n1,-1\n"), "line 2, column 2: \"-1\" is not a label from 0 to 2"));
  CHECK(contains(table_fault("x,label\n1,0.5\n"), "column 2: \"0.5\" is not a label"));
  CHECK(contains(table_fault("x,label\n1,cat\n"), "column 2: \"cat\" is not a label"));
  for (const char* wrong :
       {"", "abc", "nan", "inf", "-inf", "1e39", "-1e39", "0x10", "1.5.2", "1 2", "+-1", "--1", "1e999"}) {
    CAPTURE(wrong);
    CHECK(table_fault("label,x\n\n0," + std::string(wrong) + "\n") ==
          "line 3, column 2: \"" + std::string(wrong) +
              "\" is not a number that fp32 has; each column must hold one, so write others as numbers or "
              "leave them out");
  }
  // What a float is too coarse for is 0 or the nearest that it has.
  CHECK(table_of("label,x,y,z\n0,1e-400,-1e-320,1e-40\n").value().values ==
        std::vector<float>{0, -0.0f, 1e-40f});
  CHECK(contains(table_fault("label,x\n0,\"\x1b[31m\xff" + std::string(50, 'y') + "\"\n"),
                 "column 2: \"\\x1b[31m\\xff" + std::string(34, 'y') + "…\" is not a number"));
  CHECK(table_fault("label,x\n0,3.4e38\n") == "accepted");
}

Result<CsvTable> table_in(const CsvForm& form, const std::string& text) {
  return parse_csv(pieces_of(text), form);
}

TEST_CASE("a header is told by the label's name, or by having no number; the form may say it") {
  const auto named = table_of("0,1,label\n5,6,1\n7,8,2\n");  // pandas' names of unnamed columns
  REQUIRE_MESSAGE(named.ok(), named.status().message());
  CHECK(named.value().header);
  CHECK(named.value().values == std::vector<float>{5, 6, 7, 8});
  CHECK(named.value().label == 3);
  CHECK(table_of("a,b\n5,1\n", "2").value().header);
  CHECK_FALSE(table_of("5,6,1\n7,8,2\n", "3").value().header);
  for (const char* first : {"0,1,2", "0,1", "1,2,3", "7.0,8.0,9.0", "-1,0,1"}) {
    CAPTURE(first);
    const std::string text = std::string(first) + "\n" + std::string(first) + "\n";
    CsvForm form{.label_column = "2", .classes = 9};
    const auto doubtful = table_in(form, text);
    CHECK(contains(doubtful.status().message(),
                   "are they the columns' names, as pandas writes them, or a row? Set "
                   "data.header to \"yes\" or \"no\""));
    form.header = HeaderLine::kYes;
    const auto named_so = table_in(form, text);
    REQUIRE_MESSAGE(named_so.ok(), named_so.status().message());
    CHECK(named_so.value().labels.size() == 1);
    form.header = HeaderLine::kNo;
    CHECK(table_in(form, text).value().labels.size() == 2);
  }
  CHECK(table_fault("2,1\n0,1\n", "2") == "accepted");  // of two columns many rows count on
  CHECK(table_fault("1,2\n0,1\n", "2") == "accepted");
  CHECK(contains(table_fault("kind,1\n0,1\n", "1"), "set data.header to \"yes\""));
  CHECK(contains(
      table_fault("x,1\n0,1\n", "2"),
      "line 1, column 1: \"x\" is not a number that fp32 has; each column must hold one, so write others "
      "as numbers or leave them out; if this line has names, set data.header to \"yes\""));
}

TEST_CASE("a first column without a name is an index, as pandas and R write it, and left out") {
  for (const char* text :
       {",a,label\n0,5,1\n1,6,2\n", "\"\",\"a\",\"label\"\n\"Mazda\",5,1\n\"Fiat\",6,2\n"}) {
    const auto table = table_of(text);
    REQUIRE_MESSAGE(table.ok(), table.status().message());
    CHECK(table.value().index);
    CHECK(table.value().features == 1);
    CHECK(table.value().values == std::vector<float>{5, 6});
    CHECK(table.value().labels == std::vector<std::int32_t>{1, 2});
  }
  CHECK_FALSE(table_of("a,b,label\n0,5,1\n").value().index);
  CHECK(contains(table_fault("a,,label\n0,,1\n"), "line 2, column 2: \"\" is not a number"));
  CHECK(contains(
      table_fault("label,a,label\n0,1,2\n"),
      "line 1: two columns are called \"label\", 1 and 3; set data.label_column to the number of the one"));
  CHECK(table_of("label,a,label\n0,1,2\n", "3").value().labels == std::vector<std::int32_t>{2});
}

TEST_CASE("other delimiters are read if the form says so, and else named") {
  for (const auto& [delimiter, character, words] :
       {std::tuple{Delimiter::kSemicolon, ";", "semicolons (';')"},
        {Delimiter::kTab, "\t", "tabs"},
        {Delimiter::kBar, "|", "bars ('|')"}}) {
    const std::string c = character, text = "a" + c + "\"b" + c + "\"" + c + "label\n5" + c + "6" + c + "1\n";
    const auto table = table_in({.label_column = "label", .classes = 3, .delimiter = delimiter}, text);
    REQUIRE_MESSAGE(table.ok(), table.status().message());
    CHECK(table.value().values == std::vector<float>{5, 6});
    CHECK(table_fault(text) == std::string("is not separated by commas, but by ") + words +
                                   "; set data.delimiter to \"" + name_of(delimiter) + '"');
  }
  CHECK(table_in({.label_column = "label", .classes = 3, .delimiter = Delimiter::kTab}, "a,label\n")
            .status()
            .message() == "is not separated by tabs, but by commas; set data.delimiter to \",\"");
  CHECK(table_fault("1.0e0 2.0e0 0\n") == "is not separated by commas, but by spaces; write it with commas");
  const CsvForm german{.label_column = "label", .classes = 3, .delimiter = Delimiter::kSemicolon};
  CHECK(contains(
      table_in(german, "a;label\n0,5;1\n").status().message(),
      "line 2, column 1: \"0,5\" is not a number that fp32 has; each column must hold one, so write others "
      "as numbers or leave them out; a decimal comma is written as a point"));
  CHECK(table_fault("# of 2026\na,label\n") ==
        "line 1 begins with \"#\", and comments are not read; take them out");
}

TEST_CASE("a file that is no text is told by its first bytes") {
  for (const auto& [bytes, said] :
       {std::pair{"\x1f\x8b\x08", "is compressed with gzip; unpack it first (gunzip)"},
        {"\xff\xfe"
         "a",
         "is UTF-16; write it as UTF-8 (iconv -f UTF-16 -t UTF-8)"},
        {"\xfe\xff", "is UTF-16;"},
        {"PK\x03\x04", "is a zip archive, as a workbook of Excel is;"},
        {"PAR1", "is a Parquet file;"},
        {"\x93NUMPY", "is a NumPy array;"}})
    CHECK(table_fault(bytes).starts_with(said));
}

TEST_CASE("a line with more or fewer columns than the first is refused") {
  CHECK(table_fault("label,x,y\n0,1,2\n0,1\n") ==
        "line 3 has 2 columns, but line 1 has 3; the file may be cut there");
  CHECK(contains(table_fault("label,x\n0,1,2\n"), "line 2 has 3 columns, but line 1 has 2"));
}

TEST_CASE("a table without the label's column, rows or anything is refused") {
  CHECK(table_fault("") == "is empty; write the file again");
  CHECK(table_fault("\n\r\n") == "is empty; write the file again");
  CHECK(table_fault("label,x\n") == "has a header, but no rows; write the file again");
  CHECK(table_fault("label\n1\n") == "has only the column of the label; is it separated by commas?");
  CHECK(
      table_fault("a,b\n1,2\n") ==
      "line 1: no column is called \"label\" there, only \"a\", \"b\"; set data.label_column to the name or "
      "the number (from 1) of the one with the label");
  CHECK(contains(table_fault("1,2,3,4,5,6,7,8,9\n"),
                 "only \"1\", \"2\", \"3\", \"4\", \"5\", \"6\", \"7\", \"8\", …;"));
  for (const char* number : {"0", "3", "99999999999999999999"}) {
    CHECK(table_fault("a,b\n1,2\n", number) == "has 2 columns, counted from 1, but data.label_column is " +
                                                   std::string(number) +
                                                   "; set it to the one with the label");
  }
}

TEST_CASE("a fault while reading is handed on") {
  int pieces = 0;
  const std::string text = "label,x\n0,1\n";
  const auto next = [&]() -> Result<std::span<const std::uint8_t>> {
    if (++pieces > 1) return Status(kExitNoInput, "the disk is gone");
    return as_bytes(text);
  };
  const auto table = parse_csv(next, {.label_column = "label", .classes = 3});
  REQUIRE_FALSE(table.ok());
  CHECK(table.status().message() == "the disk is gone");
}

}  // namespace
}  // namespace dtrun::worker::csv_test
