// All workers die at stop points, of one host or of several, and go on from the copies in the host's memory.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "tests/e2e/stop_points.h"

namespace dtrun::in_memory_checkpoint_test {

using namespace dtrun::test;

namespace {

namespace fs = std::filesystem;

// The open files of a process.
std::vector<std::string> open_files(pid_t pid) {
  std::vector<std::string> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd", ignored))
    files.push_back(fs::read_symlink(entry.path(), ignored).string());
  return files;
}

long host_copies_open(pid_t pid) {
  const std::vector<std::string> files = open_files(pid);
  return std::ranges::count_if(
      files, [](const std::string& file) { return contains(file, "dtrun-in-memory-checkpoint"); });
}

}  // namespace

TEST_CASE("all workers killed at once: they go on from the copies in the host's memory, and read no disk") {
  struct Death {
    const char* point;
    int count, every;
    Starts starts;
  };
  std::deque<Case> cases;
  for (const int workers : {1, 3}) {
    for (const Death& death :
         {Death{"updated", kStep, 1, {kStep - 1, kStep - 1}},
          Death{"exchanged", kStep, 1, {kStep - 2, kStep - 1}},
          Death{"in_memory_checkpointing", kStep, 1, {kStep - 1, kStep - 1}},
          Death{"host_copied", kStep, 1, {kStep, kStep}}, Death{"updated", kStep, 5, {5, 5}},
          Death{"in_memory_checkpointing", 3, 5, {10, 10}}, Death{"evaluating", 2, 1, {9, 10}},
          Death{"finishing", 1, 1, {kSteps - 1, kSteps}}}) {
      std::vector<int> all;
      for (int rank = 0; rank < workers; ++rank) all.push_back(rank);
      cases.push_back({.name = std::to_string(workers) + " at " + death.point + ", " +
                               std::to_string(death.count) + ", every " + std::to_string(death.every),
                       .workers = workers,
                       .stops = killed_together(death.point, all, death.count),
                       .starts = death.starts,
                       .in_memory_checkpoint_steps = death.every});
    }
  }
  // One has its copy, and the other one that of the step before; the first to be back may go on alone.
  Case uneven{.name = "2 at in_memory_checkpointing and host_copied",
              .stops = {killed("host_copied", 0, kStep), killed("in_memory_checkpointing", 1, kStep)},
              .starts = Starts{kStep - 1, kStep},
              .in_memory_checkpoint_steps = 1};
  for (Stop& stop : uneven.stops) stop.after = {"killed0", "killed1"};
  cases.push_back(uneven);
  std::swap(uneven.stops[0].point, uneven.stops[1].point);
  cases.push_back(uneven);
  play(std::move(cases));
}

// Two nodes on this host, with a `dtrun store`: one with rank 0, one with two workers.
TEST_CASE("all workers of all nodes killed at once: they go on from what their hosts hold") {
  make_calm_run();
  struct Death {
    const char* point;
    int every;
    long start;
  };
  for (const Death& death : {Death{"updated", 1, kStep - 1}, Death{"in_memory_checkpointing", 1, kStep - 1},
                             Death{"updated", 5, 5}}) {
    CAPTURE(death.point);
    const Site site;
    const std::string port = std::to_string(free_port());
    Process store({kDtrun, "store", "--bind", "127.0.0.1", "--port", port});
    REQUIRE(eventually([&] { return is_listening(std::stoi(port)); }));
    const auto stops = killed_together(death.point, {0, 1, 2}, kStep);
    const auto node = [&](const std::string& rank, const std::string& workers) {
      return std::make_unique<Process>(
          site.command(
              {"--nnodes", "2", "--max_restarts", "5", "--node_rank", rank, "--rdzv_endpoint",
               "127.0.0.1:" + port, "--rdzv_id", "copies", "--nproc_per_node", workers, "--lanes", "1"},
              without_checkpoints(death.every)),
          site.environment(stops));
    };
    const auto first = node("0", "1"), second = node("1", "2");
    const Ended a = first->end(), b = second->end();
    CAPTURE(a.err);
    CAPTURE(b.err);
    CHECK(a.exit_code == 0);
    CHECK(b.exit_code == 0);
    const std::vector<long> starts = numbers_after("] going on at step ", a.err);
    REQUIRE(!starts.empty());
    CHECK(starts.front() == death.start);
    CHECK(contains(a.err, ", from the host's memory"));
    check_results(site);
  }
}

TEST_CASE("an agent takes its copies with it: the next one begins at the newest checkpoint") {
  make_calm_run();
  const Site site;
  const std::vector<std::string> copies{"recovery.in_memory_checkpoint_steps=1"};
  Stop stop = killed("updated", 0, kStep);
  stop.signal = 0;
  stop.after = {"never"};
  Process agent(site.command(standalone(1), copies), site.environment({stop}));
  REQUIRE(eventually([&] { return fs::exists(site.mark("killed0")) && has_checkpoint(site.output()); }));
  agent.signal(SIGKILL);
  agent.wait();
  const Ended resumed = run(site.command(standalone(2), copies));
  CAPTURE(resumed.err);
  CHECK(resumed.exit_code == 0);
  CHECK(contains(resumed.err, "] resumed from step 5 of "));
  CHECK_FALSE(contains(resumed.err, "from the host's memory"));
  check_results(site);
}

TEST_CASE("nobody but the agent keeps the memory of copies open, and other programs are given none") {
  make_calm_run();
  const Site site;
  Stop stop = killed("updated", 1, kStep);
  stop.signal = 0;
  stop.after = {"on"};
  Process job(site.command(standalone(2), without_checkpoints(1)), site.environment({stop}));
  REQUIRE(eventually([&] { return fs::exists(site.mark("killed1")); }));
  CHECK(host_copies_open(job.pid()) == 2);
  const std::vector<pid_t> workers = children_of(job.pid(), "dtrun-worker"),
                           watchdogs = children_of(job.pid(), "watchdog");
  REQUIRE(workers.size() == 2);
  REQUIRE(watchdogs.size() == 1);
  for (const pid_t worker : workers) {
    CHECK(host_copies_open(worker) == 0);
    CHECK(contains(read_if_there("/proc/" + std::to_string(worker) + "/maps"), "dtrun-in-memory-checkpoint"));
  }
  CHECK(host_copies_open(watchdogs[0]) == 0);
  write_text(site.mark("on"), "");
  const Ended ended = job.end();
  CHECK_MESSAGE(ended.exit_code == 0, ended.err);
  const Ended program = run({kDtrun, "--standalone", "/bin/ls", "-l", "/proc/self/fd"});
  CHECK(program.exit_code == 0);
  CHECK(contains(program.out, "->"));
  CHECK_FALSE(contains(program.out, "memfd"));
}

TEST_CASE("copies in the host's memory and a recovery from checkpoints alone are refused together") {
  const Site site;
  std::vector<std::string> options = standalone(1);
  options.insert(options.end(), {"--recovery", "checkpoint"});
  const Ended refused = run(site.command(options, without_checkpoints(1)));
  CHECK(refused.exit_code == 78);
  CHECK_MESSAGE(contains(refused.err, "/recovery/in_memory_checkpoint_steps"), refused.err);
}

}  // namespace dtrun::in_memory_checkpoint_test
