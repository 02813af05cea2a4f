// What is known of a worker's end comes in several reports.
#include "rendezvous/core/run/failures.h"

#include <doctest/doctest.h>

#include <string>

namespace dtrun::rendezvous::failures_test {
namespace {

WorkerOutcome failed(int rank, const std::string& gpu = "") {
  WorkerOutcome outcome;
  outcome.rank = rank;
  outcome.exit_code = 1;
  outcome.gpu = gpu;
  return outcome;
}

TEST_CASE("the GPU driver's finding joins the failure that was told before it") {
  Failures failures;
  failures.note(failed(1), false);
  CHECK(failures.first(false)->gpu.empty());
  failures.note(failed(0), false);
  failures.note(failed(1, "GPU 3: Xid 79"), false);
  REQUIRE(failures.first(false)->rank == 1);  // still the first
  CHECK(failures.first(false)->gpu == "GPU 3: Xid 79");
}

TEST_CASE("a later report without a finding takes none away") {
  Failures failures;
  WorkerOutcome victim = failed(2, "GPU 0: 1 row remapped");
  victim.collateral = true;
  failures.note(victim, false);
  failures.note(failed(2), false);
  REQUIRE(failures.first(true)->rank == 2);
  CHECK(failures.first(true)->gpu == "GPU 0: 1 row remapped");
}

TEST_CASE("a worker that wrote its error file before its peer failed is the first, though it ended later") {
  Failures failures;
  const auto fails = [&](int rank, const char* host, double error_at, double ended_at, bool collateral) {
    WorkerOutcome outcome = failed(rank);
    outcome.host = host;
    outcome.error_at = error_at;
    outcome.ended_at = ended_at;
    outcome.collateral = collateral;
    failures.note(outcome, false);
  };
  fails(1, "a", 0, 101, false);
  CHECK(failures.first(false)->rank == 1);
  SUBCASE("also if its agent ended it") {
    fails(0, "a", 100.5, 103, true);
    CHECK(failures.first(false)->rank == 0);
    CHECK(failures.followers(failures.first(false)).size() == 1);
    fails(2, "a", 100.25, 102, true);
    CHECK(failures.first(false)->rank == 2);
  }
  SUBCASE("but not by another host's clock") {
    fails(0, "b", 100.5, 103, true);
    CHECK(failures.first(false)->rank == 1);
  }
  SUBCASE("but not if it wrote it of that failure, or wrote none") {
    fails(0, "a", 101.5, 103, true);
    fails(2, "a", 0, 100, true);
    CHECK(failures.first(false)->rank == 1);
  }
}

}  // namespace
}  // namespace dtrun::rendezvous::failures_test
