// Ranks that read each other's memory: the guarantees when one of them is killed, stopped, given up or cannot
// be read.
#include "worker/collective/shared_memory_transport.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <latch>
#include <string>
#include <vector>

#include "tests/support/clock.h"
#include "tests/support/folder.h"
#include "tests/support/skip.h"
#include "tests/worker/collective/own_operations.h"
#include "tests/worker/collective/ranks.h"
#include "worker/base/pulse.h"
#include "worker/collective/gradient_exchange.h"
#include "worker/reduction/exchange_plan.h"

namespace dtrun::worker::shared_memory_transport_test {
namespace {

using dtrun::test::Folder;
using dtrun::test::Stopwatch;

constexpr std::size_t kSize = kDirectBytes / sizeof(float) + 500;  // by slices from three ranks on
const std::vector<VectorRange> kBuckets{{400, kSize}, {0, 400}};

// Whole numbers: any order of adding them gives the same.
float value(int rank, int step, std::size_t i) {
  return static_cast<float>(rank + 1) * static_cast<float>(step % 50 + 1) + static_cast<float>(i % 100);
}

// A rank with one leaf a step.
class Rank {
 public:
  // leaves: of a step, not more than ranks; 0: one a rank.
  explicit Rank(ProcessGroup& group, int leaves = 0, milliseconds patience = kPeerPatience)
      : rank_(group.rank()),
        world_(group.size()),
        leaves_(leaves > 0 ? leaves : group.size()),
        transport(group, kSize, kBuckets.size(), patience),
        exchange_(make_tree_exchange(group, *arithmetic_, kBuckets, &transport)),
        partial_(transport.memory().allocate(kSize)) {}

  void begin() { exchange_->begin(leaves_, sum_.data()); }
  void send(int step) {
    for (std::size_t i = 0; i < kSize; ++i) partial_.data()[i] = value(rank_, step, i);
    const float* const partials[] = {partial_.data()};
    for (int bucket = 0; bucket < 2; ++bucket) exchange_->send(bucket, partials, *stream_);
  }
  void finish() { exchange_->finish(); }
  bool has_leaf(int rank) const {
    const LeafRange own = leaves_of_rank(leaves_, rank, world_);
    return own.begin < own.end;
  }
  bool sum_is_right(int step) const {
    for (std::size_t i = 0; i < kSize; ++i) {
      float wanted = 0;
      for (int rank = 0; rank < world_; ++rank)
        if (has_leaf(rank)) wanted += value(rank, step, i);
      if (sum_.data()[i] != wanted) return false;
    }
    return true;
  }
  bool step(int step) {
    begin();
    send(step);
    finish();
    return sum_is_right(step);
  }

 private:
  const int rank_, world_, leaves_;
  const std::unique_ptr<Arithmetic> arithmetic_ = make_cpu_arithmetic();
  const std::unique_ptr<Stream> stream_ = arithmetic_->make_stream();
  const Buffer sum_{kSize};

 public:
  SharedMemoryTransport transport;

 private:
  const std::unique_ptr<GradientExchange> exchange_;
  const Buffer partial_;
};

// Counts what is sent.
class Counting final : public ProcessGroup {
 public:
  explicit Counting(ProcessGroup& inner) : inner_(inner) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::unique_ptr<Work> start(std::span<const OutMessage> sends,
                              std::span<const InMessage> receives) override {
    for (const OutMessage& message : sends) bytes += message.bytes.size();
    return inner_.start(sends, receives);
  }
  void check() const override { inner_.check(); }
  void abort() noexcept override { inner_.abort(); }

  std::atomic<std::size_t> bytes = 0;

 private:
  ProcessGroup& inner_;
};

constexpr milliseconds kLong{30000};

// What one rank tells the others, and waits for: not through the process group.
class Told {
 public:
  explicit Told(KeyValueStore& store) : store_(store) {}
  void tell(const std::string& what) { store_.set("told/" + what, "", {}); }
  void await(const std::string& what) { store_.get("told/" + what, kLong, {}); }

 private:
  KeyValueStore& store_;
};

// Processes that run `rank_main`, which returns an exit code; how they ended.
std::vector<std::optional<int>> run_as_processes(int world,
                                                 const std::function<int(ProcessGroup&, Told&)>& rank_main) {
  const Folder directory;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < world; ++rank) {
    pids.push_back(fork_child([&, rank] {
      DirectoryStore store(directory.path());
      const auto group = connect(rank, world, store, kLong);
      Told told(store);
      return rank_main(*group, told);
    }));
  }
  std::vector<std::optional<int>> ends;
  for (const pid_t pid : pids) ends.push_back(wait_for_exit(pid, milliseconds(60000)));
  return ends;
}

bool broken(const ProcessGroup& group) {
  try {
    group.check();
  } catch (const WorkerError&) {
    return true;
  }
  return false;
}

bool exited_with(const std::optional<int>& status, int code) {
  return status && WIFEXITED(*status) && WEXITSTATUS(*status) == code;
}

TEST_CASE("processes share memory, and every step's sum is right") {
  for (const int world : {2, 3, 4}) {
    CAPTURE(world);
    const auto ends = run_as_processes(world, [&](ProcessGroup& group, Told&) {
      Rank rank(group);
      for (int peer = 0; peer < world; ++peer)
        if (rank.transport.shares_with(peer) != (peer != group.rank())) return 1;
      for (int step = 0; step < 60; ++step)
        if (!rank.step(step)) return 2;
      return 0;
    });
    for (const auto& end : ends) CHECK(exited_with(end, 0));
  }
}

bool has_network_namespaces() {
  const pid_t child = fork_child([] { return unshare(CLONE_NEWNET) == 0 ? 0 : 1; });
  return exited_with(wait_for_exit(child, milliseconds(10000)), 0);
}

bool become_nobody() { return setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0; }

// Whether there may be a process of another user, and this one may open its files.
bool reads_others() {
  if (geteuid() != 0) return false;
  const pid_t other = fork_child([] { return become_nobody() ? raise(SIGSTOP) : 1; });
  int status = 0;
  waitpid(other, &status, WUNTRACED);
  if (!WIFSTOPPED(status)) return false;
  std::error_code error;
  const bool reads =
      !std::filesystem::read_symlink("/proc/" + std::to_string(other) + "/fd/0", error).empty();
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
  return reads;
}

TEST_SUITE_BEGIN("root");

TEST_CASE("ranks that cannot share memory with all send the others messages: the same sums") {
  if (!has_network_namespaces()) return test::skip("needs root, for a network namespace");
  const auto ends = run_as_processes(4, [&](ProcessGroup& group, Told&) {
    // Its connections stay; for its peers it is on another host.
    if (group.rank() == 2 && unshare(CLONE_NEWNET) != 0) return 3;
    Rank rank(group);
    for (int peer = 0; peer < 4; ++peer) {
      const bool wanted = peer != group.rank() && peer != 2 && group.rank() != 2;
      if (rank.transport.shares_with(peer) != wanted) return 1;
    }
    for (int step = 0; step < 30; ++step)
      if (!rank.step(step)) return 2;
    return 0;
  });
  for (const auto& end : ends) CHECK(exited_with(end, 0));
}

// The ranks' processes. All ranks ask.
std::vector<pid_t> processes_of(ProcessGroup& group) {
  std::vector<pid_t> pids(static_cast<std::size_t>(group.size()));
  pids[static_cast<std::size_t>(group.rank())] = getpid();
  group.all_gather(bytes_of(pids));
  return pids;
}

// From now on this rank and the others with the same number are, for all that they see, on a host of their
// own. Its connections stay.
bool move_to_host(ProcessGroup& group, int number, int ranks_of_host) {
  const int first = number * ranks_of_host;
  if (group.rank() == first && unshare(CLONE_NEWNET) != 0) return false;
  const std::vector<pid_t> pids = processes_of(group);
  bool moved = true;
  if (group.rank() != first) {
    const std::string network = "/proc/" + std::to_string(pids[static_cast<std::size_t>(first)]) + "/ns/net";
    const int descriptor = open(network.c_str(), O_RDONLY | O_CLOEXEC);
    moved = setns(descriptor, CLONE_NEWNET) == 0;
    close(descriptor);
  }
  group.barrier();
  return moved;
}

TEST_CASE(
    "ranks of hosts with as many each exchange in two levels: the same sums, fewer bytes between them") {
  if (!has_network_namespaces()) return test::skip("needs root, for a network namespace");
  for (const auto& shape : {std::pair{2, 2}, {2, 3}, {3, 2}}) {
    const int hosts = shape.first, ranks_of_host = shape.second, world = hosts * ranks_of_host;
    CAPTURE(world);
    CAPTURE(hosts);
    for (const int leaves : {world, world - 2}) {
      CAPTURE(leaves);
      const auto ends = run_as_processes(world, [&](ProcessGroup& group, Told&) {
        if (!move_to_host(group, group.rank() / ranks_of_host, ranks_of_host)) return 3;
        Counting counting(group);
        Rank rank(counting, leaves);
        for (int peer = 0; peer < world; ++peer) {
          const bool near = peer / ranks_of_host == group.rank() / ranks_of_host;
          if (rank.transport.shares_with(peer) != (near && peer != group.rank())) return 1;
        }
        for (int step = 0; step < 30; ++step) {
          counting.bytes = 0;
          rank.begin();
          if (rank.has_leaf(group.rank())) rank.send(step);
          rank.finish();
          if (!rank.sum_is_right(step)) return 2;
          // A slice of a slice to each of the other hosts, of the partial sums and of the total; and the
          // small bucket to all ranks of them. Without a tree that fits the hosts there are two blocks of a
          // host.
          const std::size_t slice = kSize / static_cast<std::size_t>(world) + 1;
          const std::size_t most =
              static_cast<std::size_t>(hosts - 1) * 3 * slice + 400 * static_cast<std::size_t>(world);
          if (counting.bytes > most * sizeof(float)) return 4;
        }
        return 0;
      });
      for (const auto& end : ends) CHECK(exited_with(end, 0));
    }
  }
}

TEST_CASE("two ranks of which only one may read the other's memory send each other messages") {
  if (!reads_others()) return test::skip("needs root, to be somebody else");
  const auto ends = run_as_processes(2, [&](ProcessGroup& group, Told&) {
    if (group.rank() == 1 && !become_nobody()) return 3;
    Rank rank(group);
    if (rank.transport.any()) return 1;
    for (int step = 0; step < 30; ++step)
      if (!rank.step(step)) return 2;
    return 0;
  });
  for (const auto& end : ends) CHECK(exited_with(end, 0));
}

TEST_SUITE_END();

TEST_CASE("a rank that is killed before it announced its part is lost at once") {
  const auto ends = run_as_processes(2, [&](ProcessGroup& group, Told&) {
    Rank rank(group);
    for (int step = 0; step < 10; ++step) rank.step(step);
    rank.begin();
    if (group.rank() == 1) raise(SIGKILL);
    rank.send(10);
    const Stopwatch since;
    try {
      rank.finish();
    } catch (const WorkerError& error) {
      return error.exit_code() == kExitWorkerPeerLost && since.fair() < milliseconds(1000) ? 0 : 1;
    }
    return 2;
  });
  CHECK(exited_with(ends[0], 0));
  CHECK((ends[1] && WIFSIGNALED(*ends[1])));
}

TEST_CASE("a rank that is killed after it announced its part is lost in the next step only") {
  const auto ends = run_as_processes(2, [&](ProcessGroup& group, Told&) {
    const std::vector<pid_t> pids = processes_of(group);
    Rank rank(group);
    for (int step = 0; step < 10; ++step) rank.step(step);
    rank.begin();
    rank.send(10);
    if (group.rank() == 1) raise(SIGKILL);
    if (!ends_within(pids[1], kLong)) return 4;
    rank.finish();
    if (!rank.sum_is_right(10)) return 1;
    try {
      rank.begin();
    } catch (const WorkerError& error) {
      return error.exit_code() == kExitWorkerPeerLost ? 0 : 2;
    }
    return 3;
  });
  CHECK(exited_with(ends[0], 0));
}

TEST_CASE("what a rank announced stays for its peers when it gives its part in the generation up") {
  const auto ends = run_as_processes(2, [&](ProcessGroup& group, Told& told) {
    auto rank = std::make_unique<Rank>(group);
    rank->step(0);
    rank->begin();
    rank->send(1);
    if (group.rank() == 1) {
      group.abort();
      rank.reset();
      Buffer other(kSize);  // may lie where its memory was
      for (std::size_t i = 0; i < kSize; ++i) other.data()[i] = -1;
      told.tell("given up");
      told.await("read");
      return 0;
    }
    told.await("given up");
    rank->finish();
    told.tell("read");
    return rank->sum_is_right(1) ? 0 : 1;
  });
  CHECK(exited_with(ends[0], 0));
  CHECK(exited_with(ends[1], 0));
}

TEST_CASE("a rank that gives its part up is lost at once to those who still wait for it") {
  const auto ends = run_as_processes(2, [&](ProcessGroup& group, Told& told) {
    auto rank = std::make_unique<Rank>(group);
    rank->step(0);
    rank->begin();
    if (group.rank() == 1) {
      rank.reset();
      told.await("lost");
      return 0;
    }
    rank->send(1);
    const Stopwatch since;
    try {
      rank->finish();
    } catch (const WorkerError& error) {
      const bool soon = since.fair() < milliseconds(1000);
      told.tell("lost");
      // Nothing is under way any more that its caller might free.
      if (!broken(group)) return 3;
      return error.exit_code() == kExitWorkerPeerLost && soon ? 0 : 1;
    }
    return 2;
  });
  CHECK(exited_with(ends[0], 0));
  CHECK(exited_with(ends[1], 0));
}

TEST_CASE("ranks that have no leaves and come late to a step hold nobody up and read it right") {
  // By slices, of which the late one has one too; and directly: then the other one is a step ahead.
  for (const int world : {3, 2}) {
    CAPTURE(world);
    const auto ends = run_as_processes(world, [&](ProcessGroup& group, Told&) {
      Rank rank(group, world - 1);
      for (int step = 0; step < 40; ++step) {
        const bool computes = rank.has_leaf(group.rank());
        if (!computes) std::this_thread::sleep_for(milliseconds(step % 3));
        rank.begin();
        if (computes) rank.send(step);
        rank.finish();
        if (!rank.sum_is_right(step)) return 2;
      }
      return 0;
    });
    for (const auto& end : ends) CHECK(exited_with(end, 0));
  }
}

TEST_CASE("a rank that is stopped is lost when patience ends, and not before") {
  const Folder directory;
  std::vector<pid_t> pids;
  for (int each = 0; each < 2; ++each) {
    pids.push_back(fork_child([&, each] {
      DirectoryStore store(directory.path());
      const auto group = connect(each, 2, store, kLong);
      Rank rank(*group, 0, milliseconds(500));
      if (each == 1) raise(SIGSTOP);
      const Stopwatch since;
      try {
        rank.step(1);
      } catch (const WorkerError&) {
        return since.wall() > milliseconds(450) ? 0 : 1;
      }
      return 2;
    }));
  }
  CHECK(exited_with(wait_for_exit(pids[0], milliseconds(10000)), 0));
  kill(pids[1], SIGKILL);
  wait_for_exit(pids[1], milliseconds(5000));
}

// Looks at this process's signs of life again and again while it waits for a peer, until one wait was looked
// at ten times: "alive/RANK" is told then.
class SignsOfLife {
 public:
  SignsOfLife(KeyValueStore& store, int rank)
      : watching_([this, &store, rank](const std::stop_token& stop) {
          for (std::int64_t last = 0, looks = 0; !stop.stop_requested();) {
            const std::int64_t before = wait();
            const bool beats = Pulse::read() != Pulse::read();
            const std::int64_t wait_of_look = wait() == before ? before : 0;
            if (wait_of_look != 0 && !beats) silent_ = true;
            looks = wait_of_look != 0 && wait_of_look == last ? looks + 1 : 0;
            last = wait_of_look;
            if (looks == 10) store.set("alive/" + std::to_string(rank), "", {});
            std::this_thread::sleep_for(milliseconds(1));
          }
        }) {}
  bool none_was_missing() const { return !silent_; }

 private:
  // The time when it began; 0: there is none.
  std::int64_t wait() const {
    const auto longest = operations_.longest_wait();
    return longest ? longest->began : 0;
  }

  const OwnOperations operations_;
  std::atomic<bool> silent_ = false;
  std::jthread watching_;
};

TEST_CASE(
    "whoever waits for a neighbour that is stopped gives signs of life, wherever that one was stopped") {
  enum StoppedAt { kBeforeItsPart, kAfterItsPart, kAfterTheStep };
  for (const int world : {2, 3}) {  // directly, and by slices
    for (const StoppedAt at : {kBeforeItsPart, kAfterItsPart, kAfterTheStep}) {
      CAPTURE(world);
      CAPTURE(at);
      const Folder directory;
      DirectoryStore store(directory.path());
      std::vector<pid_t> pids;
      for (int each = 0; each < world; ++each) {
        pids.push_back(fork_child([&, each] {
          const auto group = connect(each, world, store, kLong);
          Rank rank(*group);
          rank.step(0);
          rank.begin();
          if (each == 1 && at == kBeforeItsPart) raise(SIGSTOP);
          rank.send(1);
          if (each == 1 && at == kAfterItsPart) raise(SIGSTOP);
          const SignsOfLife signs(store, each);
          try {
            rank.finish();
            if (each == 1) raise(SIGSTOP);
            for (int step = 2;; ++step) rank.step(step);
          } catch (const WorkerError&) {
          }
          return signs.none_was_missing() ? 0 : 1;
        }));
      }
      for (int each = 0; each < world; ++each)
        if (each != 1) store.get("alive/" + std::to_string(each), kLong, {});
      kill(pids[1], SIGKILL);
      wait_for_exit(pids[1], milliseconds(5000));
      for (int each = 0; each < world; ++each)
        if (each != 1)
          CHECK(exited_with(wait_for_exit(pids[static_cast<std::size_t>(each)], milliseconds(20000)), 0));
    }
  }
}

TEST_CASE("a rank that was given up finishes a step of which all is there") {
  const auto ends = run_as_processes(2, [&](ProcessGroup& group, Told& told) {
    Rank rank(group);
    rank.step(0);
    rank.begin();
    rank.send(1);
    told.tell(std::to_string(group.rank()));
    told.await(std::to_string(1 - group.rank()));
    group.abort();
    rank.finish();
    if (!rank.sum_is_right(1)) return 1;
    try {
      rank.step(2);
    } catch (const WorkerError&) {
      return 0;
    }
    return 2;
  });
  for (const auto& end : ends) CHECK(exited_with(end, 0));
}

TEST_CASE("abort ends a wait for a neighbour within milliseconds") {
  std::latch finished(2), over(1);
  run_as_threads(2, [&](ProcessGroup& group) {
    Rank rank(group);
    rank.step(0);
    rank.begin();
    rank.send(1);
    rank.finish();
    finished.arrive_and_wait();
    // Rank 0 takes no part in the step after: the other one waits at its beginning, or in it.
    if (group.rank() == 0) return over.wait();
    std::optional<Stopwatch> since;
    std::thread aborting([&] {
      while (Pulse::read() == Pulse::read()) std::this_thread::yield();
      since.emplace();
      group.abort();
    });
    CHECK_THROWS_AS(
        {
          rank.begin();
          rank.send(2);
          rank.finish();
        },
        WorkerError);
    aborting.join();
    CHECK(since->fair() < milliseconds(200));
    over.count_down();
  });
}

}  // namespace
}  // namespace dtrun::worker::shared_memory_transport_test
