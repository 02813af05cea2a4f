#include "proto/core/text.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "proto/core/number.h"

namespace dtrun::text_test {
namespace {

TEST_CASE("one thing, and any other number of things") {
  CHECK(counted(0, "node") == "0 nodes");
  CHECK(counted(1, "node") == "1 node");
  CHECK(counted(std::int64_t{1} << 40, "step") == "1099511627776 steps");
}

TEST_CASE("numbers with decimals and in groups of three digits") {
  CHECK(decimals(0.72236, 4) == "0.7224");
  CHECK(decimals(-1.5, 0) == "-2");
  CHECK(with_thousands(0) == "0");
  CHECK(with_thousands(999) == "999");
  CHECK(with_thousands(1000) == "1,000");
  CHECK(with_thousands(1234567) == "1,234,567");
}

TEST_CASE("bytes of memory, bytes as digits, and a time for people") {
  CHECK(in_gibibytes(std::uint64_t{1} << 29) == "512.0 MiB");
  CHECK(in_gibibytes(std::uint64_t{3} << 29) == "1.5 GiB");
  CHECK(in_gibibytes(150'754'820'096) == "140 GiB");  // an H200's memory
  CHECK(hexadecimal(std::vector<unsigned char>{0, 0x1f, 0xff}) == "001fff");
  CHECK(utc_text(1700000000, "%F %T") == "2023-11-14 22:13:20");
}

TEST_CASE("a number is all of a text, or what it begins with, and fits its type") {
  CHECK(parse_number<int>("-12") == -12);
  CHECK(parse_number<std::uint64_t>("ff", 16) == 255);
  CHECK(parse_number<double>("0.25") == 0.25);
  for (const char* const text : {"", "+1", " 1", "1 ", "1.", "2147483648"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_number<int>(text));
  }
  CHECK(parse_leading_number<int>("12 kB") == 12);
  CHECK_FALSE(parse_leading_number<int>("kB"));
}

TEST_CASE("seconds to the nearest tenth, and whole ones that are not over") {
  CHECK(seconds_text(30000) == "30 s");
  CHECK(seconds_text(1199) == "1.2 s");
  CHECK(seconds_text(1149) == "1.1 s");
  CHECK(seconds_text(1150) == "1.2 s");
  CHECK(whole_seconds_text(1000) == "1 s");
  CHECK(whole_seconds_text(1001) == "2 s");
  CHECK(whole_seconds_text(-5000) == "0 s");
}

TEST_CASE("lists") {
  CHECK(join({}) == "");
  CHECK(join(std::vector<std::string>{"a"}) == "a");
  CHECK(join(std::vector<std::string>{"a", "b", "c"}) == "a, b, c");
  CHECK(join(std::vector<std::string>{"", "b", "", "d"}, "|") == "b||d");
}

TEST_CASE("texts without what is around them") {
  CHECK(trimmed(" \t a b\r\n") == "a b");
  CHECK(trimmed(" \n") == "");
  CHECK(trimmed("") == "");
  CHECK(trimmed(" a\t ", " ") == "a\t");
}

TEST_CASE("a text that is too long ends with a whole character") {
  CHECK(shortened("abc", 3) == "abc");
  CHECK(shortened("abcd", 3) == "abc");
  CHECK(shortened("a\u4e2d\u6587", 4) == "a\u4e2d");
  CHECK(shortened("a\u4e2d\u6587", 3) == "a");
  CHECK(shortened("\u4e2d", 2) == "");
}

}  // namespace
TEST_CASE("a duration has seconds up to an hour, then minutes") {
  CHECK(duration_text(59.4) == "59 s");
  CHECK(duration_text(59.6) == "1 min 00 s");
  CHECK(duration_text(3599.4) == "59 min 59 s");
  CHECK(duration_text(3599.6) == "1 h 00 min");
  CHECK(time_text(12.34) == "12.3 s");
  CHECK(time_text(59.96) == "1 min 00 s");
}

}  // namespace dtrun::text_test
