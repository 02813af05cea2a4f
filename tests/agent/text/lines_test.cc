#include "agent/text/lines.h"

#include <doctest/doctest.h>

namespace dtrun::lines_test {

using namespace dtrun::agent;
using namespace std::string_literals;

namespace {

std::vector<std::string> cut(const std::string& text, std::size_t portion) {
  LineCutter cutter;
  std::vector<std::string> lines;
  auto sink = [&](std::string_view line) { lines.emplace_back(line); };
  for (std::size_t at = 0; at < text.size(); at += portion)
    cutter.push(std::string_view(text).substr(at, portion), sink);
  cutter.finish(sink);
  return lines;
}

}  // namespace

TEST_CASE("lines come out whole however the bytes are portioned") {
  const std::string text = "first\n\nthird \0 with a zero\r\nlast, without newline"s;
  const std::vector<std::string> expected = {"first", "", "third \0 with a zero\r"s, "last, without newline"};
  for (std::size_t portion = 1; portion <= text.size(); ++portion) {
    CAPTURE(portion);
    CHECK(cut(text, portion) == expected);
  }
}

TEST_CASE("a line of exactly the greatest length is one line, a longer one comes in pieces, none is lost") {
  for (std::size_t length : {kMaxLine - 1, kMaxLine})
    CHECK(cut(std::string(length, 'x') + "\n", 1 << 20).size() == 1);
  CHECK(cut(std::string(kMaxLine + 1, 'x') + "\n", 1 << 20).size() == 2);
  const auto lines = cut(std::string(3 * kMaxLine + 5, 'x') + "\nnext\n", 1000);
  REQUIRE(lines.size() == 5);
  CHECK(lines[3].size() == 5);
  CHECK(lines[4] == "next");
}

TEST_CASE("the tail keeps the last 20 lines") {
  Tail tail;
  for (int i = 0; i < 20; ++i) tail.push("line " + std::to_string(i));
  REQUIRE(tail.lines().size() == 20);
  CHECK(tail.lines().front() == "line 0");
  for (int i = 20; i < 50; ++i) tail.push("line " + std::to_string(i));
  REQUIRE(tail.lines().size() == 20);
  CHECK(tail.lines().front() == "line 30");
  CHECK(tail.lines().back() == "line 49");
}

TEST_CASE("a line of the tail has at most 400 bytes, and says that it is cut") {
  Tail tail;
  tail.push(std::string(400, 'x'));
  tail.push(std::string(401, 'x'));
  CHECK(tail.lines() == std::vector<std::string>{std::string(400, 'x'), std::string(400, 'x') + "..."});
}

TEST_CASE("of a progress bar longer than that the tail keeps the last state") {
  Tail tail;
  tail.push(std::string(500, 'x') + "\r100 %");
  CHECK(tail.lines() == std::vector<std::string>{"100 %"});
}

}  // namespace dtrun::lines_test
