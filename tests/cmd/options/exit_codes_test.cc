// --no-restart-exit-codes as typed.
#include <doctest/doctest.h>

#include "cmd/options/values.h"

namespace dtrun::cmd::exit_codes_test {
namespace {

using Ranges = std::vector<std::pair<int, int>>;

Result<Ranges> parsed(const std::string& text) { return parse_exit_codes({text, "--no_restart_exit_codes"}); }

}  // namespace

TEST_CASE("exit codes are numbers and inclusive ranges, in the order given") {
  const std::vector<std::pair<std::string, Ranges>> cases{
      {"2,64-78", {{2, 2}, {64, 78}}}, {"1", {{1, 1}}},   {"255", {{255, 255}}},
      {"1-255", {{1, 255}}},           {"7-7", {{7, 7}}}, {"9,2,4-5", {{9, 9}, {2, 2}, {4, 5}}}};
  for (const auto& c : cases) {
    CAPTURE(c.first);
    const auto result = parsed(c.first);
    REQUIRE(result.ok());
    CHECK(result.value() == c.second);
  }
}

TEST_CASE("nothing means that every failure may be retried") {
  const auto result = parsed("");
  REQUIRE(result.ok());
  CHECK(result.value().empty());
}

TEST_CASE("what is no exit code is refused with what was found and what is allowed") {
  for (const std::string text : {"0", "256", "-1", "x", "2,x", "78-64", "1-", "-", "1-256", "1-2-3", "2,,3",
                                 ",", "2 3", "1e2", "99999999999999999999"}) {
    CAPTURE(text);
    const auto result = parsed(text);
    REQUIRE_FALSE(result.ok());
    CHECK(result.status().exit_code() == kExitUsage);
    CHECK_MESSAGE(result.status().message().find("--no_restart_exit_codes") == 0, result.status().message());
    CHECK_MESSAGE(result.status().message().find("exit codes from 1 to 255") != std::string::npos,
                  result.status().message());
  }
}

}  // namespace dtrun::cmd::exit_codes_test
