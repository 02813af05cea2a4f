// Workers whose collective broke without a cause that is known yet, where they start again after a failure.
#include <doctest/doctest.h>

#include <csignal>

#include "tests/agent/core/supervisor/scenario.h"

namespace dtrun::agent::test::broken_test {

namespace {

// The first worker was at work, and its collective broke.
Trace breaks(Scenario& s) {
  s.is_ready(0);
  return s.is_ready(0, 5, "peer closed");
}

}  // namespace

TEST_CASE("a broken collective waits for its cause, then is reported as collateral") {
  Scenario s(builtin());
  s.joins();
  s.state.connection.heartbeat_at.reset();
  CHECK(breaks(s) == Trace{});
  CHECK(s.passes(2999) == Trace{});
  CHECK(s.passes(3000) == Trace{"failure r2 code 76 collateral", "abort", "signal 15"});
}

TEST_CASE("a broken collective whose cause dies here is reported as that death alone") {
  Scenario s(builtin());
  s.joins();
  breaks(s);
  s.now = 100;
  CHECK(s.exits(1, 0, SIGSEGV) == Trace{"failure r3 signal 11", "abort", "signal 15"});
  s.state.connection.heartbeat_at.reset();
  CHECK(s.passes(5000) == Trace{});
}

TEST_CASE("a broken collective is not reported when the stop order comes first") {
  Scenario s(builtin());
  s.joins();
  s.state.connection.heartbeat_at.reset();
  breaks(s);
  CHECK(s.happens(event::StopOrder{1, "node a is lost"}) == Trace{"abort", "signal 15"});
  CHECK(s.passes(5000) == Trace{});
}

TEST_CASE("workers told to finish their step are aborted when a peer is gone") {
  Scenario s(builtin());
  s.joins();
  s.happens(event::Signal{SIGTERM});
  CHECK(breaks(s) == Trace{"abort"});
}

}  // namespace dtrun::agent::test::broken_test
