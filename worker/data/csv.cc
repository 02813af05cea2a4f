#include "worker/data/csv.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "proto/core/number.h"
#include "proto/core/text.h"
#include "worker/config/strict_json.h"
#include "worker/data/foreign.h"
#include "worker/data/message.h"

namespace dtrun::worker {

// ---- fields

int CsvReader::look() {
  if (piece_.empty() && fault_.ok()) {
    auto next = next_();
    if (next.ok()) {
      piece_ = next.value();
    } else {
      fault_ = next.status();
    }
  }
  return piece_.empty() ? -1 : piece_.front();
}

bool CsvReader::fail(const std::string& what) {
  if (fault_.ok()) {
    const std::string where = "line " + with_thousands(line_) + ", column " + std::to_string(columns_);
    fault_ = Status(kExitNoInput, where + ": " + what);
  }
  return false;
}

bool CsvReader::take(std::string& field, std::size_t size) {
  field.append(piece_.begin(), piece_.begin() + static_cast<std::ptrdiff_t>(size));
  piece_ = piece_.subspan(size);
  length_ += size;
  if (length_ <= kLongestCsvLine) return true;
  return fail("the line goes on after " + with_thousands(kLongestCsvLine) + " bytes; is it a table?");
}

// Reads from behind the opening quote to behind the closing one.
bool CsvReader::read_quoted(std::string& field) {
  for (int c = look(); c >= 0; c = look()) {
    if (c == '"') {
      piece_ = piece_.subspan(1);
      if (look() != '"') return true;
    }
    if (c == '\n') ++lines_read_;
    // The first character is content, even a quote or a line end.
    const auto end = std::find_if(piece_.begin() + 1, piece_.end(),
                                  [](std::uint8_t each) { return each == '"' || each == '\n'; });
    if (!take(field, static_cast<std::size_t>(end - piece_.begin()))) return false;
  }
  return fail("its quote is not closed; the file is cut, or a quote is missing");
}

bool CsvReader::read_field() {
  if (columns_ == kMostCsvColumns) {
    return fail("the line has more than " + with_thousands(kMostCsvColumns) + " columns; is it a table?");
  }
  if (++columns_ > fields_.size()) fields_.emplace_back();
  std::string& field = fields_[columns_ - 1];
  field.clear();
  if (look() == '"') {
    piece_ = piece_.subspan(1);
    if (!read_quoted(field)) return false;
    if (look() == '\r') piece_ = piece_.subspan(1);
    const int behind = look();
    if (behind < 0 || behind == delimiter_ || behind == '\n') return true;
    return fail("has text behind its closing quote; a quote within quotes is written twice");
  }
  for (int c = look(); c >= 0 && c != delimiter_ && c != '\n'; c = look()) {
    const auto end =
        std::ranges::find_if(piece_, [&](std::uint8_t each) { return each == delimiter_ || each == '\n'; });
    if (!take(field, static_cast<std::size_t>(end - piece_.begin()))) return false;
  }
  return true;
}

void CsvReader::skip_byte_order_mark() {
  for (const int byte : {0xef, 0xbb, 0xbf}) {
    if (look() != byte) return;
    piece_ = piece_.subspan(1);
  }
}

bool CsvReader::read_line() {
  line_ = ++lines_read_;
  columns_ = 0, length_ = 0;
  int separator = delimiter_;
  while (separator == delimiter_) {
    if (!read_field()) return false;
    separator = look();
    if (separator >= 0) piece_ = piece_.subspan(1);
  }
  if (std::string& last = fields_[columns_ - 1]; last.ends_with('\r')) last.pop_back();
  return fault_.ok();
}

Result<bool> CsvReader::read() {
  if (lines_read_ == 0) skip_byte_order_mark();
  do {
    if (look() < 0) return fault_.ok() ? Result<bool>(false) : fault_;
    if (!read_line()) return fault_;
  } while (columns_ == 1 && fields_[0].empty());
  return true;
}

// ---- numbers and labels

namespace {

char character_of(Delimiter delimiter) { return ",;\t|"[static_cast<int>(delimiter)]; }

std::string in_words(Delimiter delimiter) {
  constexpr const char* kWords[] = {"commas", "semicolons (';')", "tabs", "bars ('|')"};
  return kWords[static_cast<int>(delimiter)];
}

bool is_number_of_column(const CsvForm& form) {
  return std::ranges::all_of(form.label_column, [](char c) { return c >= '0' && c <= '9'; });
}

constexpr std::string_view kBlanks = " \t";

// Nothing for a text that is not a finite number. One that is smaller than a double can be is 0.
std::optional<double> number_in(std::string_view text) {
  text = trimmed(text, kBlanks);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double number = 0;
  const auto [end, error] = read_number_at(text, &number, 10);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range) number = std::strtod(std::string(text).c_str(), nullptr);
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

std::string shown_field(std::string_view field) {
  constexpr std::size_t kShown = 40;
  std::string text = "\"";
  text += printable(field.substr(0, kShown));
  text += field.size() > kShown ? "…\"" : "\"";
  return text;
}

Status wrong_field(const CsvReader& reader, std::size_t column, const std::string& what) {
  return Status(kExitNoInput, "line " + with_thousands(reader.line()) + ", column " + std::to_string(column) +
                                  ": " + shown_field(reader.field(column)) + " " + what);
}

// Whether fields are whole numbers that count on from the first one. Of two a row may well be such.
bool counts(const CsvReader& reader) {
  if (reader.columns() == 2 && number_in(reader.field(1)) != 0) return false;
  for (std::size_t column = 1; column <= reader.columns(); ++column) {
    const auto number = number_in(reader.field(column)), first = number_in(reader.field(1));
    if (!number || *number != std::floor(*first) + static_cast<double>(column - 1)) return false;
  }
  return true;
}

Result<bool> is_header(const CsvReader& first, const CsvForm& form) {
  if (form.header != HeaderLine::kAuto) return form.header == HeaderLine::kYes;
  bool numbers = false;
  for (std::size_t column = 1; column <= first.columns(); ++column) {
    numbers = numbers || number_in(first.field(column));
    if (trimmed(first.field(column), kBlanks) == form.label_column && !is_number_of_column(form)) return true;
  }
  if (!numbers || !counts(first)) return !numbers;
  return Status(kExitNoInput, "line " + with_thousands(first.line()) + " has the numbers " +
                                  shown_field(first.field(1)) + ", " + shown_field(first.field(2)) +
                                  (first.columns() > 2 ? ", …" : "") +
                                  ": are they the columns' names, as pandas writes them, or a row? Set "
                                  "data.header to \"yes\" or \"no\"");
}

// A first line of one field in words: the delimiter that it may have.
std::string one_column(const CsvReader& first, const CsvForm& form) {
  if (first.field(1).starts_with('#'))
    return "line " + with_thousands(first.line()) +
           " begins with \"#\", and comments are not read; take them out";
  for (const auto delimiter : {Delimiter::kComma, Delimiter::kSemicolon, Delimiter::kTab, Delimiter::kBar})
    if (delimiter != form.delimiter && first.field(1).find(character_of(delimiter)) != std::string::npos)
      return "is not separated by " + in_words(form.delimiter) + ", but by " + in_words(delimiter) +
             "; set data.delimiter to \"" + name_of(delimiter) + '"';
  if (trimmed(first.field(1), kBlanks).find(' ') != std::string_view::npos)
    return "is not separated by " + in_words(form.delimiter) + ", but by spaces; write it with commas";
  return "has only the column of the label; is it separated by " + in_words(form.delimiter) + "?";
}

// The column's number, from the first line.
Result<std::size_t> find_label(const CsvReader& first, const CsvForm& form) {
  const std::string& wanted = form.label_column;
  if (is_number_of_column(form)) {
    const auto column = parse_number<std::size_t>(wanted);
    if (column && *column >= 1 && *column <= first.columns()) return *column;
    return Status(kExitNoInput, "has " + std::to_string(first.columns()) +
                                    " columns, counted from 1, but data.label_column is " + wanted +
                                    "; set it to the one with the label");
  }
  std::vector<std::size_t> found;
  for (std::size_t column = 1; column <= first.columns(); ++column)
    if (trimmed(first.field(column), kBlanks) == wanted) found.push_back(column);
  if (found.size() == 1) return found[0];
  if (!found.empty())
    return Status(kExitNoInput, "line " + with_thousands(first.line()) + ": two columns are called " +
                                    shown_field(wanted) + ", " + std::to_string(found[0]) + " and " +
                                    std::to_string(found[1]) +
                                    "; set data.label_column to the number of the one that counts");
  std::string names;
  for (std::size_t column = 1; column <= std::min<std::size_t>(first.columns(), 8); ++column) {
    if (column > 1) names += ", ";
    names += shown_field(first.field(column));
  }
  if (first.columns() > 8) names += ", …";
  return Status(kExitNoInput,
                "line " + with_thousands(first.line()) + ": no column is called " + shown_field(wanted) +
                    " there, only " + names +
                    "; set data.label_column to the name or the number (from 1) of the one with the label");
}

// Reads rows into a table whose first line is known.
class TableReader {
 public:
  TableReader(CsvReader& reader, const CsvForm& form, std::size_t label, bool header)
      : reader_(reader), form_(form), label_(label), columns_(reader.columns()), first_line_(reader.line()) {
    const bool index = header && label != 1 && columns_ > 2 && trimmed(reader.field(1), kBlanks).empty();
    table_.label = label, table_.header = header, table_.index = index;
    table_.features = columns_ - 1 - (index ? 1 : 0);
  }

  Status add_row() {
    if (reader_.columns() != columns_) {
      return Status(kExitNoInput, "line " + with_thousands(reader_.line()) + " has " +
                                      std::to_string(reader_.columns()) + " columns, but line " +
                                      with_thousands(first_line_) + " has " + std::to_string(columns_) +
                                      "; the file may be cut there");
    }
    for (std::size_t column = table_.index ? 2 : 1; column <= columns_; ++column) {
      RETURN_IF_ERROR(column == label_ ? add_label(column) : add_value(column));
    }
    return Status();
  }

  std::size_t rows() const { return table_.labels.size(); }
  CsvTable take() { return std::move(table_); }

 private:
  Status add_value(std::size_t column) {
    const std::optional<double> number = number_in(reader_.field(column));
    const float value = number ? static_cast<float>(*number) : INFINITY;
    if (!std::isfinite(value)) {
      return wrong_field(reader_, column,
                         "is not a number that fp32 has; each column must hold one, so write others as "
                         "numbers or leave them out" +
                             way_out(reader_.field(column)));
    }
    table_.values.push_back(value);
    return Status();
  }

  // What else may be meant.
  std::string way_out(std::string field) const {
    std::ranges::replace(field, ',', '.');
    if (form_.delimiter != Delimiter::kComma && number_in(field))
      return "; a decimal comma is written as a point (pandas: decimal=\".\")";
    return form_.header == HeaderLine::kAuto && reader_.line() == first_line_
               ? "; if this line has names, set data.header to \"yes\""
               : "";
  }

  Status add_label(std::size_t column) {
    const std::optional<double> number = number_in(reader_.field(column));
    if (!number || *number != std::floor(*number) || *number < 0 || *number >= form_.classes) {
      return wrong_field(reader_, column,
                         "is not a label from 0 to " + std::to_string(form_.classes - 1) +
                             "; check data.label_column and data.classes" + way_out(""));
    }
    table_.labels.push_back(static_cast<std::int32_t>(*number));
    return Status();
  }

  CsvReader& reader_;
  const CsvForm& form_;
  std::size_t label_, columns_;
  std::uint64_t first_line_;
  CsvTable table_;
};

}  // namespace

Result<CsvTable> parse_csv(const NextPiece& next, const CsvForm& form) {
  auto first = next();
  if (!first.ok()) return first.status();
  if (const std::string kind = foreign_kind(first.value()); !kind.empty()) return Status(kExitNoInput, kind);
  bool begun = false;
  CsvReader reader(
      [&]() -> Result<std::span<const std::uint8_t>> { return std::exchange(begun, true) ? next() : first; },
      character_of(form.delimiter));
  Result<bool> more = reader.read();
  if (!more.ok()) return more.status();
  if (!more.value()) return Status(kExitNoInput, "is empty; write the file again");
  if (reader.columns() < 2) return Status(kExitNoInput, one_column(reader, form));
  ASSIGN_OR_RETURN(const auto label, find_label(reader, form));
  ASSIGN_OR_RETURN(const bool header, is_header(reader, form));
  TableReader table(reader, form, label, header);
  if (header) more = reader.read();
  while (more.ok() && more.value() && table.rows() < form.most_rows) {
    RETURN_IF_ERROR(table.add_row());
    more = reader.read();
  }
  if (!more.ok()) return more.status();
  if (table.rows() == 0) return Status(kExitNoInput, "has a header, but no rows; write the file again");
  return table.take();
}

}  // namespace dtrun::worker
