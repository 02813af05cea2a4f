// The limits of a Join and a JobEnd: each limit from either side. Limits in time are traces.
#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

#include "proto/core/contract.h"
#include "rendezvous/core/run/admission.h"
#include "rendezvous/core/run/state.h"

namespace dtrun::rendezvous::limits_test {
namespace {

constexpr Millis kThirtyYears = 1'000'000'000'000;

Join join() {
  Join join;
  join.member_id = "a";
  join.host = "node-a";
  join.address = "10.0.0.1";
  return join;
}

WorkerOutcome failure_of(int rank, bool collateral) {
  WorkerOutcome outcome;
  outcome.rank = rank;
  outcome.exit_code = 1;
  outcome.collateral = collateral;
  outcome.stderr_tail = {"its last line"};
  outcome.traceback = "its traceback";
  return outcome;
}

// The end of a job of one node whose workers all failed, in this order.
JobEnd end_after(const std::vector<WorkerOutcome>& failures) {
  Join alone = join();
  alone.nproc = static_cast<int>(failures.size());
  State state;
  step(state, {.from = 1, .body = alone}, 0);
  Stopped stopped;
  stopped.outcomes = failures;
  const std::vector<Action> said = step(state, {.from = 1, .generation = 1, .body = stopped}, 1000);
  REQUIRE(said.size() == 1);
  const auto* end = std::get_if<Ended>(&said.front().body);
  REQUIRE(end != nullptr);
  return *end->result;
}

// Rank 0 first, and the others because of it.
JobEnd end_after_failures_of(int workers) {
  std::vector<WorkerOutcome> failures;
  for (int rank = 0; rank < workers; ++rank) failures.push_back(failure_of(rank, rank > 0));
  return end_after(failures);
}

}  // namespace

TEST_CASE("a Join of an older and of a newer protocol is refused, whatever else it says") {
  for (const int protocol : {kRendezvousProtocol - 1, kRendezvousProtocol + 1}) {
    Join other = join();
    other.protocol = protocol;
    other.member_id = "";
    const auto refused = refuse_malformed(other);
    REQUIRE(refused);
    CHECK(refused->reason == Rejected::kOtherProtocol);
    CHECK(refused->message.find("protocol " + std::to_string(protocol) + ", and ") != std::string::npos);
  }
}

TEST_CASE("a run has at most kMaxNodes nodes, with at most kMaxWorkersPerNode workers each") {
  Join largest = join();
  largest.max_nodes = kMaxNodes;
  largest.nproc = kMaxWorkersPerNode;
  CHECK_FALSE(refuse_malformed(largest));
  Join nodes = largest, workers = largest;
  nodes.max_nodes = kMaxNodes + 1;
  workers.nproc = kMaxWorkersPerNode + 1;
  for (const Join& beyond : {nodes, workers}) {
    REQUIRE(refuse_malformed(beyond));
    CHECK(refuse_malformed(beyond)->reason == Rejected::kOtherSettings);
  }
  CHECK(refuse_malformed(nodes)->message == "--nnodes 1:65537 is not 1 <= MIN <= MAX <= 65536");
  CHECK(refuse_malformed(workers)->message == "--nproc_per_node 16385 is not within 1 and 16384");
}

TEST_CASE("a last call may be over at once, other time-outs last a millisecond at least") {
  Join shortest = join();
  shortest.last_call = 0;
  shortest.join_timeout = shortest.heartbeat_timeout = 1;
  CHECK_FALSE(refuse_malformed(shortest));
  for (Millis Join::*timeout : {&Join::last_call, &Join::join_timeout, &Join::heartbeat_timeout}) {
    Join shorter = shortest;
    --(shorter.*timeout);
    REQUIRE(refuse_malformed(shorter));
    CHECK(refuse_malformed(shorter)->message == "a timeout of the rendezvous is not positive");
  }
}

TEST_CASE("a time-out longer than thirty years is one of thirty years") {
  for (const auto& [asked, given] :
       {std::pair{kThirtyYears - 1, kThirtyYears - 1}, std::pair{kThirtyYears + 1, kThirtyYears},
        std::pair{std::numeric_limits<Millis>::max(), kThirtyYears}}) {
    Join patient = join();
    patient.last_call = patient.join_timeout = patient.heartbeat_timeout = asked;
    const Settings settings = settings_of(patient);
    CHECK(settings.last_call == given);
    CHECK(settings.join_timeout == given);
    CHECK(settings.heartbeat_timeout == given);
  }
}

TEST_CASE("the end of a job names kMaxFollowers workers beside the first, and counts the rest") {
  constexpr int kMost = static_cast<int>(kMaxFollowers);
  const JobEnd all = end_after_failures_of(1 + kMost);
  REQUIRE(all.followers.size() == kMaxFollowers);
  CHECK(all.more_followers == 0);
  const JobEnd cut = end_after_failures_of(1 + kMost + 3);
  REQUIRE(cut.followers.size() == kMaxFollowers);
  CHECK(cut.more_followers == 3);
  REQUIRE(cut.first_failure);
  CHECK(cut.first_failure->rank == 0);
  CHECK(cut.followers.front().rank == 1);
  CHECK(cut.followers.back().rank == kMost);
}

TEST_CASE("what victims wrote does not go with a job's end, what failed by itself tells its last lines") {
  const JobEnd end = end_after({failure_of(0, false), failure_of(1, true), failure_of(2, false)});
  REQUIRE(end.first_failure);
  CHECK(end.first_failure->stderr_tail.size() == 1);
  REQUIRE(end.followers.size() == 2);
  CHECK(end.followers[0].stderr_tail.empty());
  CHECK(end.followers[0].traceback.empty());
  CHECK(end.followers[1].stderr_tail.size() == 1);
  CHECK(end.followers[1].traceback == "its traceback");
}

}  // namespace dtrun::rendezvous::limits_test
