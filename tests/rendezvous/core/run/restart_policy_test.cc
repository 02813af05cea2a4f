// When a job goes on after a worker failure, and when it is given up: the policy by itself.
#include "rendezvous/core/run/restart_policy.h"

#include <doctest/doctest.h>

#include <csignal>
#include <vector>

namespace dtrun::rendezvous::restart_policy_test {
namespace {

constexpr RestartLimits kMany{.max_restarts = 100};
constexpr RestartLimits kThreeAlike{.max_restarts = 100, .crash_loop_limit = 3};
constexpr Millis kMoment = 2000;  // the length of a generation in a crash loop

// A worker that failed in its own way soon after its start.
WorkerOutcome failure(int exit_code = 1, int rank = 0) {
  WorkerOutcome outcome;
  outcome.host = "a";
  outcome.rank = rank;
  outcome.exit_code = exit_code;
  outcome.uptime_s = 1;
  return outcome;
}

WorkerOutcome killed(int signal) {
  WorkerOutcome outcome = failure(0);
  outcome.signal = signal;
  return outcome;
}

// Never the same failure twice in a row.
WorkerOutcome another(int n) { return failure(1 + n % 2); }

}  // namespace

TEST_CASE("the first restart is immediate, those that get nowhere wait 1, 2, 4 … 30 s") {
  RestartPolicy policy;
  std::vector<Millis> delays;
  for (int n = 0; n < 8; ++n) delays.push_back(policy.judge(another(n), kMany, kMoment, 0).delay);
  CHECK(delays == std::vector<Millis>{0, 1000, 2000, 4000, 8000, 16000, 30000, 30000});
  CHECK(policy.restarts() == 8);
}

TEST_CASE("a step further, or half a minute, ends the back-off") {
  RestartPolicy policy;
  for (int n = 0; n < 3; ++n) policy.judge(another(n), kMany, kMoment, 0);
  CHECK(policy.judge(another(3), kMany, kMoment, 7).delay == 0);
  CHECK(policy.judge(another(4), kMany, kMoment, 7).delay == 1000);  // no further than before
  CHECK(policy.judge(another(5), kMany, 29999, 7).delay == 2000);
  CHECK(policy.judge(another(6), kMany, 30000, 7).delay == 0);
}

TEST_CASE("a step is further if it is beyond the best of all generations, not of the last one") {
  RestartPolicy policy;
  policy.judge(another(0), kMany, kMoment, 100);
  CHECK(policy.judge(another(1), kMany, kMoment, 10).delay == 1000);
  CHECK(policy.judge(another(2), kMany, kMoment, 20).delay == 2000);
  CHECK(policy.history().best_step == 100);
}

TEST_CASE("restarts are used up one by one, and the end says so") {
  RestartPolicy policy;
  CHECK(policy.judge(another(0), {.max_restarts = 2}, kMoment, 0).reason ==
        "rank 0 on a failed (exit code 1), restart 1 of 2");
  CHECK(policy.judge(another(1), {.max_restarts = 2}, kMoment, 0).restart);
  const auto last = policy.judge(another(2), {.max_restarts = 2}, kMoment, 0);
  CHECK_FALSE(last.restart);
  CHECK(last.reason == "rank 0 on a failed (exit code 1), and all restarts are used up");
  CHECK(policy.restarts() == 2);
}

TEST_CASE("failures are counted by cause, and a restarted coordinator goes on with the count") {
  RestartPolicy policy;
  WorkerOutcome hung = killed(SIGKILL), starved = killed(SIGKILL);
  hung.cause = EndCause::kHung, starved.cause = EndCause::kOutOfMemory;
  for (const WorkerOutcome& one : {failure(3), failure(4), killed(SIGSEGV), hung, starved})
    policy.judge(one, kMany, kMoment, 0);
  policy.note_lost_node();
  const FailureCounts expected{.exit = 2, .signal = 1, .out_of_memory = 1, .hung = 1, .node_lost = 1};
  CHECK(policy.history().failures == expected);
  RestartPolicy next;
  next.resume_at(5, policy.history());
  next.judge(failure(), {}, kMoment, 0);  // the last one too
  CHECK(next.history().failures.exit == 3);
  next.resume_at(5, {.failures = {.exit = -7}});
  CHECK(next.history().failures.exit == 0);
}

TEST_CASE("without --max_restarts there are none to be used up") {
  RestartPolicy policy;
  CHECK(policy.judge(failure(), {}, kMoment, 0).reason == "rank 0 on a failed (exit code 1)");
}

TEST_CASE("a failure that would come back is not retried, whatever is left") {
  RestartPolicy policy;
  WorkerOutcome final = failure(2);
  final.retryable = false;
  const auto verdict = policy.judge(final, kMany, kMoment, 0);
  CHECK_FALSE(verdict.restart);
  CHECK(verdict.reason == "rank 0 on a failed (exit code 2), which a restart would not cure");
  CHECK(policy.restarts() == 0);
}

TEST_CASE("failures alike slow the retries down and are told, but a retry budget is a budget") {
  RestartPolicy policy;
  std::vector<Millis> delays;
  std::vector<std::string> reasons;
  for (int n = 0; n < 8; ++n) {
    const auto verdict = policy.judge(failure(3), {.max_restarts = 8}, kMoment, 0);
    CHECK(verdict.restart);
    delays.push_back(verdict.delay);
    reasons.push_back(verdict.reason);
  }
  CHECK(delays == std::vector<Millis>{0, 1000, 2000, 4000, 8000, 16000, 30000, 30000});
  CHECK(reasons[1] == "rank 0 on a failed (exit code 3), restart 2 of 8");
  CHECK(reasons[2] ==
        "rank 0 on a failed (exit code 3), soon after its start and 3 times in a row, restart 3 of 8");
  const auto last = policy.judge(failure(3), {.max_restarts = 8}, kMoment, 0);
  CHECK_FALSE(last.restart);
  CHECK(last.reason == "rank 0 on a failed (exit code 3), and all restarts are used up");
}

TEST_CASE("workers that are left wait only for a job that fails in the same way again and again") {
  RestartPolicy same, different;
  std::vector<Millis> delays;
  for (int n = 0; n < 5; ++n) {
    delays.push_back(same.judge(failure(), kMany, kMoment, 0, "", true).delay);
    CHECK(different.judge(another(n), kMany, kMoment, 0, "", true).delay == 0);
  }
  CHECK(delays == std::vector<Millis>{0, 0, 1000, 2000, 4000});
}

TEST_CASE("--crash_loop_limit N: so many failures alike, early and without progress, end the job") {
  for (const int limit : {1, 2, 3, 5}) {
    const RestartLimits limits{.max_restarts = 100, .crash_loop_limit = limit};
    RestartPolicy policy;
    for (int n = 1; n < limit; ++n) CHECK(policy.judge(failure(), limits, kMoment, 0).restart);
    const auto last = policy.judge(failure(), limits, kMoment, 0);
    CHECK_FALSE(last.restart);
    const std::string times = std::to_string(limit);
    CHECK(last.reason == "rank 0 on a failed (exit code 1), soon after its start and " + times +
                             " times in a row: --crash_loop_limit " + times);
  }
}

TEST_CASE("another code, another rank, a later end, progress and signals from outside break the row") {
  WorkerOutcome late = failure();
  late.uptime_s = 11;
  for (const WorkerOutcome& between : {failure(3), failure(1, 1), late, killed(SIGKILL), killed(SIGTERM)}) {
    RestartPolicy policy;
    policy.judge(failure(), kThreeAlike, kMoment, 0);
    policy.judge(failure(), kThreeAlike, kMoment, 0);
    CHECK(policy.judge(between, kThreeAlike, kMoment, 0).restart);
    CHECK(policy.judge(failure(), kThreeAlike, kMoment, 0).restart);
  }
  RestartPolicy policy;
  for (int step = 1; step < 6; ++step) CHECK(policy.judge(failure(), kThreeAlike, kMoment, step).restart);
}

TEST_CASE("a failure within 10 s of its worker's start is early, a later one is not") {
  for (const auto& [uptime_s, given_up] : {std::pair{9.999, true}, std::pair{10.0, false}}) {
    WorkerOutcome outcome = failure();
    outcome.uptime_s = uptime_s;
    RestartPolicy policy;
    for (int n = 0; n < 2; ++n) CHECK(policy.judge(outcome, kThreeAlike, kMoment, 0).restart);
    CHECK(policy.judge(outcome, kThreeAlike, kMoment, 0).restart != given_up);
  }
}

TEST_CASE("a kill from outside is never alike, a crash by a signal is, and so is a kill that says why") {
  WorkerOutcome explained = killed(SIGKILL);
  explained.error = "hung";
  for (const auto& [outcome, given_up] :
       {std::pair{killed(SIGKILL), false}, std::pair{killed(SIGSEGV), true}, std::pair{explained, true}}) {
    RestartPolicy policy;
    for (int n = 0; n < 2; ++n) policy.judge(outcome, kThreeAlike, kMoment, 0);
    CHECK(policy.judge(outcome, kThreeAlike, kMoment, 0).restart != given_up);
  }
}

TEST_CASE("a policy that is told another's history goes on where that one was") {
  RestartPolicy before;
  for (int n = 0; n < 2; ++n) before.judge(failure(), kThreeAlike, kMoment, 5);
  before.judge(failure(), kThreeAlike, kMoment, 5);
  RestartPolicy loop, after;
  for (int n = 0; n < 2; ++n) loop.judge(failure(), kThreeAlike, kMoment, 0);
  after.resume_at(loop.restarts(), loop.history());
  CHECK_FALSE(after.judge(failure(), kThreeAlike, kMoment, 0).restart);
  after.resume_at(before.restarts(), before.history());
  const auto next = after.judge(another(1), kThreeAlike, kMoment, 5);  // 5 is no further step
  CHECK(next.delay == 4000);
  CHECK(next.reason == "rank 0 on a failed (exit code 2), restart 4 of 100");
}

TEST_CASE("a history that makes no sense is made to") {
  RestartPolicy policy;
  policy.resume_at(2, {.quick_restarts = 1 << 30, .best_step = -7, .alike = 1 << 30, .exit_code = 1});
  CHECK(policy.restarts() == 2);
  CHECK(policy.history().quick_restarts == 2);
  CHECK(policy.history().best_step == 0);
  CHECK(policy.history().alike == 2);
  policy.resume_at(-1, {.quick_restarts = -1, .alike = -1});
  CHECK(policy.restarts() == 0);
  CHECK(policy.judge(failure(), kThreeAlike, kMoment, 0).delay == 0);
}

}  // namespace dtrun::rendezvous::restart_policy_test
