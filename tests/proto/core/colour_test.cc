#include "proto/core/colour.h"

#include <doctest/doctest.h>

#include <map>

namespace dtrun::colour_test {

namespace {

bool coloured(ColourMode mode, bool terminal, const std::map<std::string, std::string>& variables = {}) {
  return wants_colour(
      mode,
      [&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      terminal);
}

}  // namespace

TEST_CASE("by itself a terminal has colour, and nothing else") {
  CHECK(coloured(ColourMode::kAuto, true));
  CHECK(coloured(ColourMode::kAuto, true, {{"TERM", "xterm"}}));
  CHECK_FALSE(coloured(ColourMode::kAuto, true, {{"TERM", "dumb"}}));
  CHECK_FALSE(coloured(ColourMode::kAuto, false));
}

TEST_CASE("NO_COLOR takes it away, CLICOLOR_FORCE gives it anywhere, empty variables say nothing") {
  CHECK_FALSE(coloured(ColourMode::kAuto, true, {{"NO_COLOR", "0"}}));
  CHECK(coloured(ColourMode::kAuto, true, {{"NO_COLOR", ""}}));
  CHECK(coloured(ColourMode::kAuto, false, {{"CLICOLOR_FORCE", "1"}}));
  CHECK(coloured(ColourMode::kAuto, false, {{"CLICOLOR_FORCE", "1"}, {"TERM", "dumb"}}));
  CHECK_FALSE(coloured(ColourMode::kAuto, false, {{"CLICOLOR_FORCE", "0"}}));
  CHECK_FALSE(coloured(ColourMode::kAuto, false, {{"CLICOLOR_FORCE", ""}}));
  CHECK_FALSE(coloured(ColourMode::kAuto, true, {{"NO_COLOR", "1"}, {"CLICOLOR_FORCE", "1"}}));
}

TEST_CASE("the option beats the environment") {
  CHECK(coloured(ColourMode::kAlways, false, {{"NO_COLOR", "1"}, {"TERM", "dumb"}}));
  CHECK_FALSE(coloured(ColourMode::kNever, true, {{"CLICOLOR_FORCE", "1"}}));
}

TEST_CASE("without colour every text stays as it is") {
  const Palette plain;
  CHECK(plain.error("unknown option --x, did you mean --y?\n") == "unknown option --x, did you mean --y?\n");
  CHECK(plain.message("a; choose b") == "a; choose b");
  CHECK(plain.hint("c") == "c");
}

TEST_CASE("an error is red and the way out cyan, wherever it stands in the line") {
  const Palette palette(true);
  CHECK(palette.error("no such file") == "\x1b[1;31mno such file\x1b[0m");
  CHECK(palette.error("unknown option --x, did you mean --y? (dtrun --help lists all)") ==
        "\x1b[1;31munknown option --x, \x1b[0m\x1b[36mdid you mean --y?\x1b[0m\x1b[1;31m \x1b[0m"
        "\x1b[36m(dtrun --help lists all)\x1b[0m");
  CHECK(palette.error("the port is taken; choose another (or end it)") ==
        "\x1b[1;31mthe port is taken; \x1b[0m\x1b[36mchoose another (or end it)\x1b[0m");
}

TEST_CASE("no colour reaches over the end of a line, and a message has none but its hints") {
  const Palette palette(true);
  CHECK(palette.error("one\n\ntwo\n") == "\x1b[1;31mone\x1b[0m\n\n\x1b[1;31mtwo\x1b[0m\n");
  CHECK(palette.message("no run here; elsewhere: --rdzv_endpoint HOST\n") ==
        "no run here; \x1b[36melsewhere: --rdzv_endpoint HOST\x1b[0m\n");
  CHECK(palette.message("joined 1 of 2; 5 s left") == "joined 1 of 2; 5 s left");
}

TEST_CASE("of a line from elsewhere the palette's own colours stay, and nothing else that moves a terminal") {
  const std::string ours = Palette(true).error("it is full; choose another");
  CHECK(painted_line(ours) == ours);
  CHECK(painted_line("plain") == "plain");
  CHECK(painted_line("") == "");
  CHECK(painted_line("\x1b[1;31mred") == "\x1b[1;31mred\x1b[0m");
  CHECK(painted_line("\x1b[2Ja\x1b]0;title\x07\x1b[36mb\x1b[0m\x1b") == "a\x1b[36mb\x1b[0m?");
  CHECK(painted_line("\u009b2J\x1b[8mhidden") == "?2Jhidden");
  CHECK(painted_line("\x1b[36") == "?[36");
}

}  // namespace dtrun::colour_test
