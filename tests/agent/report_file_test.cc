#include "agent/report_file.h"

#include <doctest/doctest.h>

#include <string>

namespace dtrun::agent::report_file_test {
namespace {

EndedJob some_job() {
  return {
      .job = {.run_id = "mnist"},
      .ended_at = 1795659586.25,
      .end = {.exit_code = 137,
              .reason = "rank 3 failed",
              .restart_count = 2,
              .membership_changes = 4,
              .goodput = {.training = 12.5, .down = 3, .steps_redone = 7},
              .verdict =
                  rendezvous::Verdict{.text = "rank 3 is slow", .rank = 3, .cause = "data", .loss = 0.25}},
      .generation = 5,
      .world_size = 6,
      .min_nodes = 1,
      .max_nodes = 3,
      .max_restarts = 9};
}

}  // namespace

TEST_CASE("a report is read as it was written") {
  const auto read = ended_job_of(report_json(some_job(), "node1"));
  REQUIRE(read);
  CHECK(read->job.run_id == "mnist");
  CHECK(read->ended_at == 1795659586.25);
  CHECK(read->end.exit_code == 137);
  CHECK(read->end.reason == "rank 3 failed");
  CHECK(read->end.restart_count == 2);
  CHECK(read->end.membership_changes == 4);
  CHECK(read->end.goodput == some_job().end.goodput);
  CHECK(read->end.verdict == some_job().end.verdict);
  CHECK(read->generation == 5);
  CHECK(read->world_size == 6);
  CHECK(read->min_nodes == 1);
  CHECK(read->max_nodes == 3);
  CHECK(read->max_restarts == 9);
}

TEST_CASE("a report of a node that does not know the goodput is one, too") {
  EndedJob job = some_job();
  job.end.goodput = {};
  job.end.verdict.reset();
  const auto read = ended_job_of(report_json(job, "node1"));
  REQUIRE(read);
  CHECK(read->end.goodput.total() == 0);
  CHECK_FALSE(read->end.verdict);
}

TEST_CASE("what is no report, or only the beginning of one, is none") {
  const std::string whole = report_json(some_job(), "node1");
  for (std::size_t length = 0; length < whole.size() - 2; length += 7)
    CHECK_FALSE(ended_job_of(whole.substr(0, length)));
  for (const char* text : {"[]", "{}", "7", "\xff", R"({"run_id":7,"exit_code":"x"})"})
    CHECK_FALSE(ended_job_of(text));
}

}  // namespace dtrun::agent::report_file_test
