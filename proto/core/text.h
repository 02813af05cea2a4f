// Numbers and lists as people read them, and parts of texts. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/core/millis.h"

namespace dtrun {

// "1 node", "2 nodes"
std::string counted(std::int64_t count, std::string_view noun);

// "0.7224": with 4 decimals.
std::string decimals(double number, int digits);

// "1,234,567"
std::string with_thousands(std::uint64_t number);

// "61.2 GiB", "512.0 MiB"
std::string in_gibibytes(std::uint64_t bytes);

// Text in which nothing is markup of HTML, also between quotation marks.
std::string html_escaped(std::string_view text);

// "00ff": two digits for each byte.
std::string hexadecimal(std::span<const unsigned char> bytes);

// Seconds since 1970 as strftime writes them, in UTC.
std::string utc_text(std::int64_t seconds, const char* format);

// "5 s", "0.5 s": the nearest tenth. REQUIRES: not negative
std::string seconds_text(Millis duration);
// "45 s", "3 min 20 s", "2 h 05 min"
std::string duration_text(double seconds);
// The same, and below a minute with a tenth of a second: "12.3 s".
std::string time_text(double seconds);
// "12 s": rounded up, never negative.
std::string whole_seconds_text(Millis duration);

// "a, b". Empty parts in front leave no separator.
std::string join(std::span<const std::string> parts, std::string_view separator = ", ");

// The parts between separators, the lines of a text; none of an empty one, and none behind a last separator.
std::vector<std::string> split(std::string_view text, char separator = '\n');

// A line for each row, with its cells below each other: two blanks behind the widest, none behind the last.
std::vector<std::string> in_columns(const std::vector<std::vector<std::string>>& rows);

// Without such characters in front and at the end.
std::string_view trimmed(std::string_view text, std::string_view blanks = " \t\r\n");

// Its first `length` bytes at most, never half a character of UTF-8.
std::string shortened(std::string_view text, std::size_t length);

}  // namespace dtrun
