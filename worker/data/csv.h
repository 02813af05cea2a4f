// Tables as comma-separated text: RFC 4180 (fields in double quotes, doubled quotes in them, lines that end
// in LF or CRLF), a byte order mark at the beginning, and lines without anything, which are skipped. All
// columns are numbers, and one of them is the label. A first column without a name is left out: pandas and R
// write their index so.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "proto/core/status.h"
#include "worker/config/choices.h"

namespace dtrun::worker {

// The next piece of a file, valid until the next call; empty at the file's end.
using NextPiece = std::function<Result<std::span<const std::uint8_t>>()>;

// More than any line of numbers has: a file without line ends is no table, and must not fill the memory.
inline constexpr std::size_t kLongestCsvLine = std::size_t{16} << 20;  // bytes
inline constexpr std::size_t kMostCsvColumns = std::size_t{1} << 20;

class CsvReader {
 public:
  explicit CsvReader(NextPiece next, char delimiter = ',') : next_(std::move(next)), delimiter_(delimiter) {}

  // Reads the next line that is not empty. False at the end. A failure says line and column.
  Result<bool> read();

  // The line that read() read last; lines and columns are counted from 1.
  std::uint64_t line() const { return line_; }
  std::size_t columns() const { return columns_; }
  const std::string& field(std::size_t column) const { return fields_[column - 1]; }

 private:
  int look();  // the next character, or -1: none, or fault_
  void skip_byte_order_mark();
  // False: fault_ has the reason.
  bool read_line();
  bool read_field();
  bool read_quoted(std::string& field);
  bool take(std::string& field, std::size_t size);  // from the piece; false: the line is too long
  bool fail(const std::string& what);               // false

  NextPiece next_;
  const char delimiter_;
  std::span<const std::uint8_t> piece_;
  Status fault_;
  std::uint64_t line_ = 0, lines_read_ = 0;
  std::vector<std::string> fields_;  // the first columns_ of them are in use
  std::size_t columns_ = 0, length_ = 0;
};

struct CsvTable {
  std::size_t features = 0;  // columns without the label's and the index
  std::size_t label = 0;     // its column, from 1
  bool header = false, index = false;
  std::vector<float> values;         // [rows, features]
  std::vector<std::int32_t> labels;  // [rows]
};

struct CsvForm {
  std::string label_column;  // its name in the header, or its number from 1
  int classes = 0;           // labels are 0..classes-1
  Delimiter delimiter = Delimiter::kComma;
  HeaderLine header = HeaderLine::kAuto;
  std::size_t most_rows = SIZE_MAX;
};

// At least one row. Unless the form says it, a first line is a header if it has the label column's name or no
// number at all, and one of consecutive numbers is refused: names as pandas makes them, or a row. Failures
// have EX_NOINPUT and say line, column, the text found and a remedy; they do not name the file.
Result<CsvTable> parse_csv(const NextPiece& next, const CsvForm& form);

}  // namespace dtrun::worker
