#include "proto/core/utf8.h"

#include <doctest/doctest.h>

namespace dtrun::utf8_test {
namespace {

TEST_CASE("the first byte that is no part of a character is found") {
  for (const char* good :
       {"", "plain text of more than eight bytes", "\u00e9\u4e2d\U0001f600", "\x7f", "\u0080", "\u07ff\u0800",
        "\ud7ff", "\ue000\uffff", "\U00010000\U0010ffff", "1234567\u00e9"})
    CHECK_FALSE(invalid_utf8_at(good));
  struct Bad {
    const char* bytes;
    std::size_t at;
  };
  for (const Bad& bad : {Bad{"\xff", 0},
                         {"12345678\x80", 8},
                         {"ab\xc3", 2},
                         {"\xc3\xa9\xe4\xb8", 2},
                         {"\xc0\x80", 0},
                         {"\xc1\xbf", 0},
                         {"\xe0\x9f\xbf", 0},
                         {"\xed\xa0\x80", 0},
                         {"\xf0\x8f\xbf\xbf", 0},
                         {"\xf4\x90\x80\x80", 0},
                         {"\xf5\x80\x80\x80", 0},
                         {"a\xe4\xb8 b", 1},
                         {"1234567\xc3zzzzzzzz", 7}}) {
    CAPTURE(bad.at);
    REQUIRE(invalid_utf8_at(bad.bytes));
    CHECK(*invalid_utf8_at(bad.bytes) == bad.at);
  }
}

TEST_CASE("printable text is valid UTF-8 without control characters, as a terminal would show it") {
  CHECK(printable("héllo\tworld") == "héllo\tworld");
  CHECK(printable("10 %\r20 %\r30 %\r") == "30 %");
  CHECK(printable("a\x1b[1;31mb\x1b[0m") == "ab");  // colours, titles, links, modes
  CHECK(printable("\x1b]0;title\a"
                  "a\x1b]8;;http://x\x1b\\b\x1b"
                  "cc") == "abc");
  CHECK(printable("a\x1b[3") == "a?[3");
  CHECK(printable("a\x1b") == "a?");
  CHECK(printable("\x1b]0;\nb") == "?]0;\nb");
  CHECK(printable("\x1b[1\nm") == "?[1\nm");
  CHECK(printable("\u0080\u009b31m\u009d52;c;\u009f\u00a0\u0100\x7f") == "??31m?52;c;?\u00a0\u0100?");  // C1
  // Characters that hide, or turn text around; the joiners of words and emoji stay.
  CHECK(printable("a\u202eb\u2066c\u200bd\ufeffe\u2028f\u00adg\U000e0041h\u061ci") == "a?b?c?d?e?f?g?h?i");
  CHECK(printable("\u0645\u06cc\u200c\u062e \U0001f468\u200d\U0001f469") ==
        "\u0645\u06cc\u200c\u062e \U0001f468\u200d\U0001f469");
  CHECK(printable("\xff\xc3(\xe2\x82") ==
        "?"
        "?(?"
        "?");
  CHECK(printable("\xc0\x80\xed\xa0\x80") == "?????");
}

TEST_CASE("of a long text the end is kept, line by line, without what a terminal would obey") {
  CHECK(printable_lines("one\r\n\x1b[31mtwo\n\n") == "one\ntwo");
  const std::string text = printable_lines(std::string(20'000, 'a') + "\n" + std::string(10'000, 'b'));
  CHECK(text == "...\n" + std::string(10'000, 'b'));
  CHECK(printable_lines(std::string(100'000, 'c')).size() <= (16 << 10) + 3);
}

}  // namespace
}  // namespace dtrun::utf8_test
