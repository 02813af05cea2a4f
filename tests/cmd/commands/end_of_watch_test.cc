#include "cmd/commands/status/end_of_watch.h"

#include <doctest/doctest.h>

namespace dtrun::end_of_watch_test {

using namespace dtrun::cmd;
using Finding = Observation::Finding;

namespace {

// Looks at a run, at times in seconds.
struct Watched {
  EndOfWatch watch{{.run_id = "job7", .where = "h:1", .exit_status = true}};

  std::optional<Status> see(Finding found, int at, int exit_code = 0) {
    const Observation look{found, exit_code, found == Finding::kNoAnswer ? "no coordinator at h:1" : ""};
    return watch.see(look, EndOfWatch::Time(std::chrono::seconds(at)));
  }
};

}  // namespace

TEST_CASE("a watch goes on until its run is over, and ends with the run's exit code where that is wanted") {
  Watched watched;
  CHECK_FALSE(watched.see(Finding::kRun, 0));
  CHECK_FALSE(watched.see(Finding::kRun, 100000));
  CHECK(watched.see(Finding::kOver, 100001, 137)->exit_code() == 137);
  CHECK(watched.see(Finding::kOver, 100001, 137)->message() == "");
  CHECK(watched.see(Finding::kOver, 100001, 0)->exit_code() == 0);
  EndOfWatch plain({.run_id = "job7", .where = "h:1"});
  CHECK(plain.see({Finding::kOver, 137, ""}, {})->exit_code() == 0);
}

TEST_CASE("a run that nobody knows of is refused at once, with the way to find it") {
  const auto end = Watched().see(Finding::kNoSuchRun, 0);
  REQUIRE(end);
  CHECK(end->exit_code() == 69);
  CHECK(end->message() ==
        "no run job7 at h:1: it has not begun, or is over and forgotten (dtrun status --rdzv_endpoint h:1 "
        "shows "
        "all that it knows)");
  CHECK(Watched().see(Finding::kNoAnswer, 0, 77)->exit_code() == 77);
  CHECK(Watched().see(Finding::kNoAnswer, 0)->message() == "no coordinator at h:1");
}

TEST_CASE("a phase is waited for from before the run's begin to its end") {
  EndOfWatch watch({.run_id = "job7", .where = "h:1", .until = "stopping"});
  CHECK_FALSE(watch.see({Finding::kNoAnswer, 69, "no coordinator at h:1"}, {}));
  CHECK_FALSE(watch.see({Finding::kNoSuchRun, 0, ""}, {}));
  CHECK(watch.see({Finding::kNoAnswer, 77, "another key"}, {})->exit_code() == 77);
  CHECK_FALSE(watch.see({Finding::kRun, 0, ""}, {}));
  const auto end = watch.see({Finding::kOver, 3, ""}, {});
  REQUIRE(end);
  CHECK(end->exit_code() == 69);
  CHECK(end->message() == "run job7 is over, exit code 3, and was not seen stopping");
}

TEST_CASE("a run that was seen is waited for as long as a store needs to come back") {
  Watched watched;
  CHECK_FALSE(watched.see(Finding::kRun, 0));
  CHECK_FALSE(watched.see(Finding::kNoAnswer, 5));
  CHECK_FALSE(watched.see(Finding::kNoSuchRun, 14));  // the store is back, its agents are not
  CHECK_FALSE(watched.see(Finding::kRun, 14));
  CHECK_FALSE(watched.see(Finding::kNoAnswer, 20));
  CHECK_FALSE(watched.see(Finding::kNoAnswer, 29));
  const auto end = watched.see(Finding::kNoAnswer, 30);
  REQUIRE(end);
  CHECK(end->exit_code() == 69);
  CHECK(end->message().starts_with(
      "the coordinator of run job7 at h:1 is gone, and did not say how the run ended (see "));
  CHECK(
      watched.see(Finding::kNoSuchRun, 30)->message().starts_with("run job7 is no longer known at h:1, and"));
}

}  // namespace dtrun::end_of_watch_test
