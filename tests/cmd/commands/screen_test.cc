// The terminal output of `dtrun status --watch`.
#include "cmd/commands/status/screen.h"

#include <doctest/doctest.h>

namespace dtrun::cmd::screen_test {

TEST_CASE("the first text goes where the cursor is, the next one in its place, line by line") {
  Screen screen;
  CHECK(screen.show("one\ntwo\n", {24, 80}) == "one\033[K\ntwo\033[K\n\033[J");
  CHECK(screen.show("1\n", {24, 80}) == "\r\033[2A1\033[K\n\033[J");
  CHECK(screen.show("1\n2\n3\n", {24, 80}) == "\r\033[1A1\033[K\n2\033[K\n3\033[K\n\033[J");
}

TEST_CASE("a line that does not fit is cut, counted in characters") {
  Screen screen;
  CHECK(screen.show("1234567890\n", {24, 11}) == "1234567890\033[K\n\033[J");
  CHECK(screen.show("12345678901\n", {24, 11}).find("123456789…\033[K") != std::string::npos);
  CHECK(screen.show("ääääää\n", {24, 7}).find("ääääää\033[K") != std::string::npos);
  CHECK(screen.show("äääääää\n", {24, 7}).find("äääää…\033[K") != std::string::npos);
}

TEST_CASE("a colour takes no column, and ends with the line that is cut in it") {
  Screen screen;
  CHECK(screen.show("\033[31mred\033[0m word\n", {24, 9}) == "\033[31mred\033[0m word\033[K\n\033[J");
  CHECK(screen.show("a \033[31mlong red\033[0m word\n", {24, 9}).find("a \033[31mlong \033[0m") ==
        std::string::npos);
  CHECK(screen.show("a \033[31mlong red\033[0m word\n", {24, 9}).find("a \033[31mlong …\033[0m\033[K\n") !=
        std::string::npos);
}

TEST_CASE("a text with more lines than the terminal says how many are missing") {
  Screen screen;
  CHECK(screen.show("1\n2\n3\n", {4, 80}) == "1\033[K\n2\033[K\n3\033[K\n\033[J");
  CHECK(screen.show("1\n2\n3\n4\n", {4, 80}) == "\r\033[3A1\033[K\n2\033[K\n… 2 more lines\033[K\n\033[J");
}

TEST_CASE("a terminal of another size is cleared: it has wrapped the old lines in its own way") {
  Screen screen;
  screen.show("1\n", {24, 80});
  CHECK(screen.show("1\n", {24, 40}) == "\033[H\033[2J1\033[K\n\033[J");
  CHECK(screen.show("1\n", {0, 0}).find("\033[H") == 0);  // a terminal that does not know
}

}  // namespace dtrun::cmd::screen_test
