// Workers die at every moment of their lives, at stop points.
#include "tests/e2e/stop_points.h"

#include <filesystem>
#include <memory>
#include <utility>

namespace dtrun::stop_points_test {

using namespace dtrun::test;
namespace fs = std::filesystem;

namespace {

// A moment in a worker's life, and how many steps its survivors have done then.
struct Moment {
  const char* point;
  int count;
  std::optional<Starts> starts;
};

std::string name_of(const Stop& stop) {
  return "rank " + std::to_string(stop.rank) + " at " + stop.point + ", " + std::to_string(stop.count);
}

}  // namespace

TEST_CASE("a worker killed before anybody has trained") {
  std::deque<Case> cases;
  for (const char* point : {"hello", "loading", "ready", "meeting", "connecting", "choosing_start"}) {
    for (const int rank : {0, 1}) {
      const Stop stop = killed(point, rank);
      cases.push_back({.name = name_of(stop), .stops = {stop}, .starts = {}});
    }
  }
  // Whichever comes first reads the four files of the node's data, and is killed with two in memory.
  Case first{.name = "the one that reads the data", .workers = 3};
  for (const int rank : {0, 1, 2})
    first.stops.push_back(
        {.point = "data_made", .rank = rank, .count = 2, .signal = SIGKILL, .once = "killed"});
  cases.push_back(first);
  play(std::move(cases));
}

// Each rank computes 4 microbatches of a step and 8 of an evaluation.
TEST_CASE("a worker killed in training: the survivor goes on with what it holds, and takes in another") {
  const Starts before{kStep - 1, kStep - 1}, around{kStep - 1, kStep};
  std::deque<Case> cases;
  for (const Moment& moment :
       {Moment{"microbatch", 1, Starts{0, 0}}, Moment{"microbatch", 4 * (kStep - 1) + 2, before},
        Moment{"bucket_sent", 2 * (kStep - 1) + 1, before}, Moment{"exchanged", kStep, around},
        Moment{"updated", kStep, around}, Moment{"evaluating", 3, Starts{9, 10}}}) {
    for (const int rank : {0, 1}) {
      const Stop stop = killed(moment.point, rank, moment.count);
      Case one{.name = name_of(stop), .stops = {stop}, .starts = moment.starts};
      take_in(one, 1 - rank, {rank});
      cases.push_back(one);
    }
  }
  // Only rank 0 writes.
  for (const Moment& moment : {Moment{"saving", 1, Starts{4, 5}}, Moment{"writing", 1, Starts{4, kSteps}}}) {
    const Stop stop = killed(moment.point, 0, moment.count);
    cases.push_back({.name = name_of(stop), .stops = {stop}, .starts = moment.starts});
  }
  play(std::move(cases));
}

// Two norms are four exchanges of a step.
TEST_CASE(
    "microbatches wait for each other's at norms, between which a worker is killed, or told of a node that "
    "joins") {
  const std::vector<std::string> norms{
      "train.batch_norm_group=0", "model.type=layers",
      R"(model.layers=["Flatten", {"Linear": {"out_features": 64}}, "BatchNorm1d", "ReLU", )"
      R"({"Linear": {"out_features": 8}}, "BatchNorm1d", "ReLU", "Linear"])"};
  const Site calm;
  const Ended alone = run(calm.command(standalone(1), norms));
  REQUIRE_MESSAGE(alone.exit_code == 0, alone.err);
  for (const int exchange : {1, 2, 3, 4}) {
    const Stop stop = killed("norms_exchanged", exchange % 2, 4 * (kStep - 1) + exchange);
    CAPTURE(name_of(stop));
    const Site site;
    std::vector<std::string> options = standalone(2);
    options.insert(options.end(), {"--max_restarts", "1"});
    Process job(site.command(options, norms), site.environment({stop}));
    const Ended ended = job.end();
    REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
    CHECK(numbers_after("going on at step ", ended.err).front() == kStep - 1);
    CHECK(model(site.output()) == model(calm.output()));
  }

  const Site site;
  const std::string port = std::to_string(free_port());
  Process store({kDtrun, "store", "--bind", "127.0.0.1", "--port", port});
  REQUIRE(eventually([&] { return is_listening(std::stoi(port)); }));
  const auto node = [&](const std::string& rank) {
    return std::make_unique<Process>(
        site.command(
            {"--nnodes", "1:2", "--node_rank", rank, "--rdzv_endpoint", "127.0.0.1:" + port, "--rdzv_id",
             "norms", "--rdzv_conf", "last_call_timeout=0", "--nproc_per_node", "1", "--lanes", "1"},
            norms),
        site.environment({{.point = "norms_exchanged",
                           .rank = 0,
                           .count = 4 * kStep + 2,
                           .once = "held",
                           .after = {"ordered"}},
                          {.point = "pause_ordered", .rank = 0, .once = "ordered"}}));
  };
  const auto first = node("0");
  REQUIRE_MESSAGE(eventually([&] { return fs::exists(site.mark("held")); }), first->err());
  const auto second = node("1");
  const Ended ended = first->end();
  REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
  CAPTURE(ended.err);
  CHECK(second->end().exit_code == 0);
  const std::vector<long> starts = numbers_after("] going on at step ", ended.err);
  REQUIRE(starts.size() == 1);
  CHECK(starts.front() >= kStep + 1);  // it leaves after the step in hand, or with the next
  CHECK(starts.front() <= kStep + 2);
  CHECK(contains(ended.err, "going on with 2 workers on 2 nodes"));
  CHECK(model(site.output()) == model(calm.output()));
}

TEST_CASE("a worker killed in the end: the survivor ends the job") {
  const Starts last{kSteps - 1, kSteps};
  std::deque<Case> cases;
  for (const Moment& moment : {Moment{"evaluating", 2 * 8 + 3, last}, Moment{"finishing", 1, last},
                               Moment{"model_written", 1, last}, Moment{"last_barrier", 1, last},
                               // The other one may have ended, or not.
                               Moment{"leaving_last", 1, {}}}) {
    for (const int rank : {0, 1}) {
      if (rank == 1 && moment.point == std::string("model_written")) continue;
      const Stop stop = killed(moment.point, rank, moment.count);
      cases.push_back({.name = name_of(stop), .stops = {stop}, .starts = moment.starts});
    }
  }
  play(std::move(cases));
}

// ---- Several workers, and their help for each other. ----

namespace {

// Rank `lost` of three is replaced, and while the replacement is being taken in, another one dies.
Case relieved(int lost, Stop second) {
  Case one{.name = name_of(second), .workers = 3, .stops = {killed("exchanged", lost, kStep)}};
  one.starts = Starts{kStep - 1, kStep};
  take_in(one, (lost + 1) % 3, {lost});
  second.once = "second";
  second.given = "ordered";
  one.stops.push_back(second);
  return one;
}

}  // namespace

TEST_CASE("two of three workers killed at once: the third goes on with what it holds") {
  const Starts around{kStep - 1, kStep};
  std::deque<Case> cases;
  for (const Moment& moment : {Moment{"exchanged", kStep, around}, Moment{"updated", kStep, around},
                               Moment{"bucket_sent", 2 * (kStep - 1) + 1, Starts{kStep - 1, kStep - 1}}}) {
    for (int third = 0; third < 3; ++third) {
      const std::vector<int> lost{(third + 1) % 3, (third + 2) % 3};
      Case one{.name = "all but rank " + std::to_string(third) + " at " + moment.point,
               .workers = 3,
               .stops = killed_together(moment.point, lost, moment.count),
               .starts = moment.starts};
      take_in(one, third, lost);
      cases.push_back(one);
    }
  }
  for (const char* point : {"finishing", "last_barrier"}) {
    cases.push_back({.name = std::string("ranks 0 and 1 at ") + point,
                     .workers = 3,
                     .stops = killed_together(point, {0, 1}, 1),
                     .starts = Starts{kSteps - 1, kSteps}});
  }
  play(std::move(cases));
}

TEST_CASE("all workers killed at once: they begin at the newest checkpoint") {
  std::deque<Case> cases;
  for (const int workers : {2, 3}) {
    for (const auto& [point, count] : {std::pair{"microbatch", 1},
                                       {"updated", 3},
                                       {"updated", kStep},
                                       {"updated", 21},
                                       {"finishing", 1},
                                       {"leaving_last", 1}}) {
      std::vector<int> all;
      for (int rank = 0; rank < workers; ++rank) all.push_back(rank);
      cases.push_back({.name = std::to_string(workers) + " at " + point + ", " + std::to_string(count),
                       .workers = workers,
                       .stops = killed_together(point, all, count)});
    }
  }
  play(std::move(cases));
}

TEST_CASE("a worker killed while a replacement is taken in: nothing is lost as long as one is left") {
  std::deque<Case> cases;
  for (const int lost : {0, 1, 2}) {
    const int source = lost == 0 ? 1 : 0, other = lost == 2 ? 1 : 2;
    for (const int survivor : {source, other}) {
      cases.push_back(relieved(lost, killed("leaving", survivor)));
      cases.push_back(relieved(lost, killed("choosing_start", survivor)));
    }
    cases.push_back(relieved(lost, killed("sending_state", source)));
    cases.push_back(relieved(lost, killed("receiving_state", lost)));
  }
  play(std::move(cases));
}

TEST_CASE("the only survivor killed while it sends its state: the newest checkpoint is left") {
  std::deque<Case> cases;
  for (const int lost : {0, 1}) {
    for (const char* point : {"leaving", "sending_state"}) {
      Case one{
          .name = "rank " + std::to_string(1 - lost) + " at " + point,
          .stops =
              {killed("exchanged", lost, kStep),
               {.point = point, .rank = 1 - lost, .signal = SIGKILL, .given = "ordered", .once = "second"}},
          .starts = Starts{}};
      take_in(one, 1 - lost, {lost});
      one.starts.reset();
      cases.push_back(one);
    }
  }
  play(std::move(cases));
}

TEST_CASE("replacements killed while they load or meet: the survivor goes on meanwhile") {
  std::deque<Case> cases;
  for (const int lost : {0, 1}) {
    for (const char* point : {"hello", "loading", "ready", "meeting", "choosing_start"}) {
      const std::string first = "killed" + std::to_string(lost);
      Case one{.name = "the replacement of rank " + std::to_string(lost) + " at " + point,
               .stops = {killed("exchanged", lost, kStep)},
               .starts = Starts{kStep - 1, kStep}};
      take_in(one, 1 - lost, {lost});
      one.stops.push_back(
          {.point = point, .rank = lost, .signal = SIGKILL, .given = first, .once = "second"});
      cases.push_back(one);
    }
  }
  play(std::move(cases));
}

// Two nodes on this host, with a `dtrun store`: one with rank 0, one with two workers. Rank 1 dies and is
// replaced. Its node's agent is killed when the other worker of that node has left its generation for the
// replacement's sake, and before the next one begins.
TEST_CASE("an agent killed between the order to pause and the next generation: the other node goes on") {
  make_calm_run();
  const Site site;
  const std::string port = std::to_string(free_port());
  Process store({kDtrun, "store", "--bind", "127.0.0.1", "--port", port});
  REQUIRE(eventually([&] { return is_listening(std::stoi(port)); }));
  Case one{.name = "agent", .stops = {killed("exchanged", 1, kStep)}, .starts = Starts{}};
  take_in(one, 0, {1});
  one.stops.push_back({.point = "ready", .rank = 2, .count = 3, .once = "left", .after = {"never"}});
  const auto node = [&](const std::string& rank, const std::string& workers) {
    return std::make_unique<Process>(
        site.command({"--nnodes", "1:2", "--max_restarts", "1", "--node_rank", rank, "--rdzv_endpoint",
                      "127.0.0.1:" + port, "--rdzv_id", "points", "--rdzv_conf", "last_call_timeout=30",
                      "--nproc_per_node", workers, "--lanes", "1"}),
        site.environment(one.stops));
  };
  const auto first = node("0", "1"), second = node("1", "2");
  REQUIRE_MESSAGE(eventually([&] { return fs::exists(site.mark("left")); }), first->err() << second->err());
  second->signal(SIGKILL);
  const Ended a = first->end();
  CAPTURE(a.err);
  CAPTURE(second->end().err);
  CHECK(a.exit_code == 0);
  const std::vector<long> starts = numbers_after("] going on at step ", a.err);
  REQUIRE(!starts.empty());
  check_taken_in(starts.back(), 3);
  CHECK_FALSE(contains(a.err, "resumed from step"));
  CHECK_FALSE(contains(a.err, "done again"));
  check_results(site);
}

TEST_CASE("a job that fails for good saves what its survivors hold, and is resumed there") {
  make_calm_run();
  for (const int lost : {0, 1, 2}) {
    CAPTURE(lost);
    const Site site;
    std::vector<std::string> options = standalone(3);
    options.insert(options.end(), {"--max_restarts", "0"});
    const Ended failed = run(site.command(options), site.environment({killed("updated", lost, kStep)}));
    CAPTURE(failed.err);
    CHECK(failed.exit_code == 128 + SIGKILL);
    CHECK_FALSE(contains(failed.err, "was not saved"));
    const Ended resumed = run(site.command(standalone(2)));
    CAPTURE(resumed.err);
    CHECK(resumed.exit_code == 0);
    const std::vector<long> starts = numbers_after("] resumed from step ", resumed.err);
    REQUIRE(starts.size() == 1);
    CHECK(starts.front() >= kStep - 1);
    CHECK(starts.front() <= kStep);
    check_results(site);
  }
}

}  // namespace dtrun::stop_points_test
