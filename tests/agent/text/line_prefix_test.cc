#include "agent/text/line_prefix.h"

#include <doctest/doctest.h>

namespace dtrun::line_prefix_test {

using namespace dtrun::agent;

namespace {

std::string prefix(const std::string& text, const std::string& time = "") {
  std::string out;
  fill_prefix(text, {"trainer", 12, 4, "node-b"}).append_to(&out, time);
  return out;
}

}  // namespace

TEST_CASE("fields are filled in, doubled braces are braces") {
  CHECK(prefix("[{role}:{rank}] ") == "[trainer:12] ");
  CHECK(prefix("{host}/{local_rank}") == "node-b/4");
  CHECK(prefix("{{{rank}}}") == "{12}");
  CHECK(prefix("} $ {{rank}}") == "} $ {rank}");
  CHECK(prefix("").empty());
}

TEST_CASE("the time is filled in for each line") {
  CHECK(prefix("{time} {rank} {time}|", "now") == "now 12 now|");
  CHECK(fill_prefix("{time}", {}).has_time());
  CHECK_FALSE(fill_prefix("{rank}", {}).has_time());
}

TEST_CASE("a field that does not exist, or is not closed, is found") {
  CHECK_FALSE(unknown_placeholder("[{role}:{rank}] {local_rank}{host}{time}{{x}}"));
  CHECK(unknown_placeholder("{rank}{rnk}") == "rnk");
  CHECK(unknown_placeholder("{}") == "");
  CHECK(unknown_placeholder("a {rank") == "{");
}

TEST_CASE("torchrun's template keeps its meaning") {
  CHECK(prefix(from_torchrun_template("[${role_name}${local_rank}]:")) == "[trainer4]:");
  CHECK(prefix(from_torchrun_template("${hostname} $rank ${else} {rank}")) == "node-b 12 ${else} {rank}");
  CHECK(prefix(from_torchrun_template("$$rank $rankle $${rank}")) == "$rank $rankle ${rank}");
}

TEST_CASE("time is UTC with milliseconds, so that hosts can be compared") {
  CHECK(timestamp(1700000000042) == "2023-11-14T22:13:20.042Z");
}

}  // namespace dtrun::line_prefix_test
