// NCCL's stand-in between processes: delivery, the view of the others when one dies, and errors that end a
// process.
#include <doctest/doctest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/folder.h"
#include "tests/support/process.h"

namespace {

using dtrun::test::Ended;
using dtrun::test::Process;
using namespace std::chrono_literals;
using Words = std::vector<std::string>;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The ranks of a communicator, started one after another.
class Ranks {
 public:
  Ranks(int size, const std::string& what, Words environment = {}) {
    environment.push_back("DTRUN_TEST_GPUS=" + std::to_string(size));
    environment.push_back("DTRUN_TEST_GPU_MEMORY=" + std::to_string(64 << 20));
    environment.push_back("TSAN_OPTIONS=atexit_sleep_ms=0");
    Words argv{DTRUN_NCCL_RANK, what, "0", std::to_string(size)};
    start(argv, environment);
    REQUIRE(ranks_[0]->wait_for_out(" ."));
    const std::string out = ranks_[0]->out();
    argv.push_back(out.substr(3, out.find(" .") - 3));
    for (int rank = 1; rank < size; ++rank) {
      argv[2] = std::to_string(rank);
      start(argv, environment);
    }
  }

  Process& operator[](int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  Ended end(int rank) { return (*this)[rank].end(60s); }

 private:
  void start(const Words& argv, const Words& environment) {
    ranks_.push_back(std::make_unique<Process>(argv, environment));
  }

  std::vector<std::unique_ptr<Process>> ranks_;
};

TEST_CASE("bytes arrive between processes, in every order of theirs and of their streams") {
  const dtrun::test::Folder folder;
  for (const Words& environment : {Words{}, Words{"DTRUN_TEST_NCCL_ORDER=7", "DTRUN_TEST_GPU_STREAMS=random"},
                                   Words{"DTRUN_TEST_NCCL_ORDER=8", "DTRUN_TEST_GPU_STREAMS=at-once"},
                                   Words{"DTRUN_TEST_NCCL_FOLDER=" + folder.path().string()}}) {
    Ranks ranks(3, "exchange", environment);
    for (int rank = 0; rank < 3; ++rank) {
      const Ended ended = ranks.end(rank);
      CAPTURE(rank);
      INFO(ended.out.substr(ended.out.size() / 2) << ended.err);
      CHECK(ended.exit_code == 0);
      CHECK(contains(ended.out, "right"));
    }
  }
  CHECK(std::filesystem::is_empty(folder.path()));
}

// Rank 1 of three dies in its third group.
void check_death(const std::string& deaths, const std::string& state_of_0, const std::string& state_of_2) {
  Ranks ranks(3, "until-silence", {"DTRUN_TEST_NCCL_FAULT=dies:1@3", "DTRUN_TEST_NCCL_DEATHS=" + deaths});
  CHECK(ranks.end(1).exit_code == 128 + SIGKILL);
  for (const int rank : {0, 2}) {
    const Ended ended = ranks.end(rank);
    INFO(ended.err);
    CHECK(ended.exit_code == 0);
    CHECK(contains(ended.out, "round 2 does not end"));
    CHECK(contains(ended.out, "state " + (rank == 0 ? state_of_0 : state_of_2)));
    CHECK(contains(ended.out, "NaN"));
  }
}

TEST_CASE("of a process that dies in mid-message the others know by an error, or not at all") {
  check_death("some", "0", "0");
  check_death("all", "6", "6");
}

TEST_CASE("a process that is killed or stopped is silence, and an abort does not wait for it") {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    Ranks ranks(2, "until-silence");
    for (const int rank : {0, 1}) REQUIRE(ranks[rank].wait_for_out("exchanges"));
    ranks[1].signal(signal);
    const Ended ended = ranks.end(0);
    CHECK(ended.exit_code == 0);
    CHECK(contains(ended.out, "does not end"));
    CHECK(contains(ended.out, "done"));
  }
}

TEST_CASE("an id whose maker is dead brings nobody together") {
  Ranks ranks(1, "nothing");
  REQUIRE(ranks[0].wait_for_out("met"));
  const std::string out = ranks[0].out(), id = out.substr(3, out.find(" .") - 3);
  ranks[0].signal(SIGKILL);
  ranks[0].wait();
  Process late({DTRUN_NCCL_RANK, "exchange", "0", "1", id});
  CHECK(!late.wait_for_out("right", 500ms));
}

TEST_CASE("an abort that hangs does so in the rank that is to, also while it launches alone") {
  for (const std::string what : {"abort", "abort-while-launching"}) {
    Ranks ranks(2, what, {"DTRUN_TEST_NCCL_FAULT=abort-busy-hangs:0,abort-hangs:1"});
    CHECK(ranks[1].wait_for_out("aborting"));
    CHECK(!ranks[1].wait_for_out("aborted", 300ms));
    const bool busy = what == "abort-while-launching";
    CHECK(ranks[0].wait_for_out("aborted", busy ? 300ms : 20s) == !busy);
  }
}

TEST_CASE("a fault that is had once is had by one process") {
  const dtrun::test::Folder folder;
  const Words environment{"DTRUN_TEST_NCCL_FAULT=dies:1@2,dies:0@2",
                          "DTRUN_TEST_NCCL_FAULT_ONCE=" + (folder / "once").string()};
  std::ofstream(folder / "once.1") << "";
  {
    Ranks ranks(2, "exchange", environment);
    CHECK(ranks.end(1).exit_code == 128 + SIGKILL);
    CHECK(!ranks[0].wait_for_out("right", 200ms));
  }
  Ranks ranks(2, "exchange", environment);
  CHECK(ranks.end(0).exit_code == 0);
  CHECK(ranks.end(1).exit_code == 0);
}

TEST_CASE("what would be a use of freed memory ends the process, which says so") {
  const auto check_stops = [](const std::string& what, const std::string& why) {
    Ranks ranks(1, what);
    const Ended ended = ranks.end(0);
    CHECK(ended.exit_code == 128 + SIGABRT);
    CHECK(contains(ended.err, why));
    CHECK(!contains(ended.out, "done"));
  };
  check_stops("abort-twice", "ncclCommAbort is given a communicator that was aborted or destroyed");
  check_stops("use-after-abort",
              "ncclCommGetAsyncError is given a communicator that was aborted or destroyed");
  check_stops("open-group", "a thread ends between ncclGroupStart and ncclGroupEnd");
}

TEST_CASE("a fault that is none ends the process") {
  for (const std::string setting : {"DTRUN_TEST_NCCL_FAULT=sulks:1", "DTRUN_TEST_NCCL_FAULT=silent",
                                    "DTRUN_TEST_NCCL_DEATHS=few", "DTRUN_TEST_NCCL_ORDER=x"}) {
    const Ended ended = dtrun::test::run({DTRUN_NCCL_RANK, "exchange", "0", "1"}, {setting});
    CHECK(ended.exit_code == 128 + SIGABRT);
    CHECK(contains(ended.err, "is unknown"));
  }
}

}  // namespace
