// What is known of a worker's end comes in several reports.
#include "rendezvous/core/run/failures.h"

#include <doctest/doctest.h>

#include <string>

namespace dtrun::rendezvous {
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

}  // namespace
}  // namespace dtrun::rendezvous
