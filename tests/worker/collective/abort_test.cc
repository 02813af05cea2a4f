#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <latch>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "tests/support/clock.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"
#include "tests/worker/collective/own_operations.h"
#include "tests/worker/collective/ranks.h"
#include "tests/worker/collective/stopped_peer.h"
#include "worker/base/pulse.h"
#include "worker/collective/gradient_exchange.h"
#include "worker/reduction/exchange_plan.h"

namespace dtrun::worker::abort_test {
namespace {

using dtrun::test::eventually;
using dtrun::test::Folder;
using dtrun::test::Stopwatch;

// An abort takes a few milliseconds; all that it must be far from is the timeout of a wait, 60 s.
constexpr milliseconds kSoon{1000};

std::vector<std::unique_ptr<ProcessGroup>> meet(int world, KeyValueStore& store,
                                                const std::string& prefix = "gloo/") {
  std::signal(SIGPIPE, SIG_IGN);
  std::vector<std::unique_ptr<ProcessGroup>> groups(world);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      ProcessGroupOptions options{.rank = rank, .size = world, .address = "127.0.0.1"};
      options.store_prefix = prefix;
      groups[rank] = make_gloo_process_group(options, store);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return groups;
}

std::vector<std::unique_ptr<ProcessGroup>> meet(int world) {
  MemoryStore store;
  return meet(world, store);
}

// How a call ended: the exit code of its error, or 0.
struct End {
  int exit_code = 0;
  std::string error;
};
End end_of(const std::function<void()>& call) {
  End end;
  try {
    call();
  } catch (const WorkerError& error) {
    end.exit_code = error.exit_code();
    end.error = error.what();
  }
  return end;
}

// The names of this process's threads.
std::set<std::string> threads_by_name() {
  std::set<std::string> names;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
    names.insert(task.path().filename());
  return names;
}

// The threads that this process starts from now on.
class Newcomers {
 public:
  // Returns once one of them waits for a peer, and all sleep.
  void await_wait() const {
    REQUIRE(eventually([&] { return operations_.longest_wait() && all_sleep(); }));
  }

 private:
  bool all_sleep() const {
    for (const std::string& thread : threads_by_name()) {
      if (before_.contains(thread)) continue;
      std::ifstream status("/proc/self/task/" + thread + "/status");
      for (std::string line; std::getline(status, line);)
        if (line.starts_with("State:") && line.find('S', 6) == std::string::npos) return false;
    }
    return true;
  }

  const OwnOperations operations_;
  const std::set<std::string> before_ = threads_by_name();
};

// Runs `wait` on a thread, calls `abort` once it waits, and checks that the wait ended then, and for it.
void check_abort_ends(const std::string& what, const std::function<void()>& wait,
                      const std::function<void()>& abort, const Newcomers& newcomers = {}) {
  End end;
  std::atomic<bool> aborted = false;
  bool for_no_other_reason = false;
  std::thread waiting([&] {
    end = end_of(wait);
    for_no_other_reason = aborted;
  });
  newcomers.await_wait();
  const Stopwatch since;
  aborted = true;
  abort();
  const auto returned = since.fair();
  waiting.join();
  const auto ended = since.fair();
  using Precise = std::chrono::duration<double, std::milli>;
  MESSAGE(what << ": abort() returned after " << Precise(returned).count() << " ms, the wait had ended after "
               << Precise(ended).count() << " ms");
  CHECK(end.exit_code == kExitWorkerPeerLost);
  CHECK(end.error == "the process group was aborted");
  CHECK(for_no_other_reason);
  CHECK(returned < kSoon);
  CHECK(ended < kSoon);
}

TEST_CASE("an abort ends the wait for a message that nobody sends") {
  const auto ranks = meet(2);
  std::vector<std::byte> place(10);
  const InMessage message{.peer = 1, .tag = kTag, .bytes = place};
  check_abort_ends(
      "receive",
      [&] {
        ranks[0]->start({}, {&message, 1})->wait();
      },
      [&] { ranks[0]->abort(); });
}

TEST_CASE("a wait for a message gives signs of life, and none once it has ended") {
  std::vector<std::byte> place(10);
  const auto ranks = meet(2);
  const std::uint64_t before = Pulse::read();
  CHECK(Pulse::read() == before);
  std::jthread waiting([&] {
    const InMessage message{.peer = 1, .tag = kTag, .bytes = place};
    CHECK_THROWS_AS(ranks[0]->start({}, {&message, 1})->wait(), WorkerError);
  });
  while (Pulse::read() == before) std::this_thread::sleep_for(milliseconds(1));
  for (std::uint64_t last = Pulse::read(), looks = 0; looks < 20; ++looks) {
    std::this_thread::sleep_for(milliseconds(1));
    const std::uint64_t now = Pulse::read();
    CHECK(now != std::exchange(last, now));
  }
  ranks[0]->abort();
  waiting.join();
  const std::uint64_t after = Pulse::read();
  CHECK(Pulse::read() == after);
}

namespace {

// One rank's step of three, of one bucket that goes by slices; the others never send.
struct LonelyStep {
  explicit LonelyStep(ProcessGroup& group)
      : exchange(make_tree_exchange(group, *arithmetic, {{0, kDirectBytes}})) {
    exchange->begin(3, sum.data());
    exchange->send(0, {&partial, 1}, *arithmetic->make_stream());
  }
  const Newcomers newcomers;
  const std::unique_ptr<Arithmetic> arithmetic = make_cpu_arithmetic();
  std::vector<float> leaf = std::vector<float>(kDirectBytes, 1), sum = std::vector<float>(kDirectBytes);
  const float* const partial = leaf.data();
  std::unique_ptr<GradientExchange> exchange;  // given up before the memory that it points to
};

}  // namespace

TEST_CASE("an abort ends the wait of the thread of rounds, and a tree exchange is destroyed at once") {
  const auto ranks = meet(3);
  LonelyStep step(*ranks[0]);
  check_abort_ends(
      "tree exchange", [&] { step.exchange->finish(); }, [&] { ranks[0]->abort(); }, step.newcomers);
  const Stopwatch since;
  step.exchange.reset();
  CHECK(since.fair() < kSoon);
}

TEST_CASE("an abort ends the wait of the thread of rounds when nobody waits for that thread") {
  const auto ranks = meet(3);
  LonelyStep step(*ranks[0]);
  step.newcomers.await_wait();
  ranks[0]->abort();
  const Stopwatch since;
  step.exchange.reset();
  CHECK(since.fair() < kSoon);
}

TEST_CASE("an abort ends the wait for a large message that a stopped peer does not take") {
  const StoppedPeer peer(false);
  peer.await_stop();
  const std::vector<std::byte> bytes(kLarge);
  const OutMessage message{.peer = 1, .tag = kTag, .bytes = bytes};
  check_abort_ends(
      "send halfway",
      [&] {
        peer.group->start({&message, 1}, {})->wait();
      },
      [&] { peer.group->abort(); });
}

// Memory that gloo may be writing to.
__attribute__((no_sanitize("thread"))) std::byte peek(const std::byte* at) { return *at; }

// A message of zeros of which a part has come; the rest of the memory is sevens. The peer decides by itself
// when it stops, so it may take several.
struct HalfReceived {
  HalfReceived() {
    do {
      pending.reset();
      peer.emplace(true);
      place.assign(kLarge, std::byte{7});
      const InMessage message{.peer = 1, .tag = kTag, .bytes = place};
      pending = peer->group->start({}, {&message, 1});
      peer->group->barrier();
      peer->await_stop();
      REQUIRE(eventually([&] { return peer->bytes_from_peer() == 0; }));
    } while (peek(place.data() + kLarge - 1) == std::byte{0});
    CHECK(peek(place.data()) == std::byte{0});
  }

  std::optional<StoppedPeer> peer;
  std::vector<std::byte> place;
  std::unique_ptr<Work> pending;
};

TEST_CASE("an abort ends the wait for a message halfway, and nothing is written to its place any more") {
  HalfReceived half;
  ProcessGroup& group = *half.peer->group;
  check_abort_ends(
      "receive halfway", [&] { half.pending->wait(); }, [&] { group.abort(); });
  std::memset(half.place.data(), 7, kLarge);
  const std::size_t sockets = half.peer->open_sockets();
  half.peer->go_on();
  REQUIRE(eventually([&] { return half.peer->open_sockets() < sockets; }));  // it sends no more
  CHECK(half.place.front() == std::byte{7});
  CHECK(std::memcmp(half.place.data(), half.place.data() + 1, kLarge - 1) == 0);
}

// The error is gloo's own, and comes at once: not after the timeout of 60 s.
void check_lost(const StoppedPeer& peer, Work& pending) {
  const Stopwatch since;
  peer.die();
  const End end = end_of([&] { pending.wait(); });
  CHECK(since.fair() < kSoon);
  CHECK(end.exit_code == kExitWorkerPeerLost);
  CHECK(end.error.starts_with("lost rank 1: "));
}

TEST_CASE("a peer that dies when it has sent half a message makes the other fail at once") {
  const HalfReceived half;
  check_lost(*half.peer, *half.pending);
}

TEST_CASE("a peer that dies when it has received half a message makes the other fail at once") {
  const StoppedPeer peer(false);
  peer.await_stop();
  const std::vector<std::byte> bytes(kLarge);
  const OutMessage message{.peer = 1, .tag = kTag, .bytes = bytes};
  const auto pending = peer.group->start({&message, 1}, {});
  REQUIRE(eventually([&] { return peer.bytes_to_peer() > 10000; }));  // not only that it comes
  check_lost(peer, *pending);
}

void check_given_up(ProcessGroup& group, Work& earlier) {
  std::vector<float> values(10);
  const std::function<void()> calls[] = {
      [&] { group.start({}, {}); },
      [&] { group.barrier(); },
      [&] { group.broadcast(0, bytes_of(values)); },
      [&] { earlier.wait(); },
  };
  for (const auto& call : calls) {
    const Stopwatch since;
    const End end = end_of(call);
    CHECK(since.fair() < kSoon);
    CHECK(end.exit_code == kExitWorkerPeerLost);
    CHECK(end.error == "the process group was aborted");
  }
}

TEST_CASE("after an abort, or two at once, every operation fails, and the peers see the end") {
  const auto ranks = meet(2);
  std::vector<std::byte> place(10);
  const InMessage message{.peer = 1, .tag = kTag, .bytes = place};
  const auto pending = ranks[0]->start({}, {&message, 1});
  std::thread twice([&] { ranks[0]->abort(); });
  ranks[0]->abort();
  twice.join();
  check_given_up(*ranks[0], *pending);
  const Stopwatch since;
  const End end = end_of([&] { ranks[1]->barrier(); });
  CHECK(since.fair() < kSoon);
  CHECK(end.exit_code == kExitWorkerPeerLost);
  CHECK(end.error.starts_with("lost rank 0: "));
}

TEST_CASE("a single process can be aborted too") {
  const auto group = make_single_process_group();
  const auto pending = group->start({}, {});
  group->abort();
  check_given_up(*group, *pending);
}

TEST_CASE("messages under way may be given up before and after their collective") {
  auto ranks = meet(2);
  std::vector<std::byte> place(10);
  const InMessage message{.peer = 1, .tag = kTag, .bytes = place};
  auto before = ranks[0]->start({}, {&message, 1});
  auto after = ranks[0]->start({}, {&message, 1});
  ranks[0]->abort();
  before.reset();
  ranks[0].reset();
  place = {};
  CHECK(end_of([&] { after->wait(); }).exit_code == kExitWorkerPeerLost);
}

// A rank of two at 127.0.0.1 meets one that does not come.
void meet_nobody(KeyValueStore& store, std::stop_token stop, int rank = 0) {
  ProcessGroupOptions options{.rank = rank, .size = 2, .address = "127.0.0.1"};
  options.stop = std::move(stop);
  make_gloo_process_group(options, store);
}

TEST_CASE("a stop ends the meeting while a peer has not come") {
  MemoryStore store;
  std::stop_source stop;
  check_abort_ends(
      "meeting, no peer", [&] { meet_nobody(store, stop.get_token()); }, [&] { stop.request_stop(); });
}

TEST_CASE("a stop that was requested before ends the meeting at once") {
  MemoryStore store;
  std::stop_source stop;
  stop.request_stop();
  const End end = end_of([&] { meet_nobody(store, stop.get_token()); });
  CHECK(end.exit_code == kExitWorkerPeerLost);
  CHECK(end.error == "the process group was aborted");
}

TEST_CASE("a stop that comes after the meeting aborts the process group") {
  MemoryStore store;
  std::stop_source stop;
  std::unique_ptr<ProcessGroup> ranks[2];
  std::thread other([&] { ranks[1] = connect(1, 2, store, milliseconds(60000)); });
  ProcessGroupOptions options{.rank = 0, .size = 2, .address = "127.0.0.1"};
  options.stop = stop.get_token();
  ranks[0] = make_gloo_process_group(options, store);
  other.join();
  check_abort_ends(
      "stop", [&] { ranks[0]->barrier(); }, [&] { stop.request_stop(); });
}

// Ends its process when it has published its address.
class DyingStore final : public KeyValueStore {
 public:
  explicit DyingStore(KeyValueStore& inner) : inner_(inner) {}
  void set(const std::string& key, const std::string& value, std::stop_token stop) override {
    inner_.set(key, value, std::move(stop));
    if (key == "gloo/0") raise(SIGKILL);
  }
  std::string get(const std::string& key, milliseconds timeout, std::stop_token stop) override {
    return inner_.get(key, timeout, std::move(stop));
  }

 private:
  KeyValueStore& inner_;
};

TEST_CASE("a stop ends the meeting with a peer that died when it had published its address") {
  const Folder directory;
  const pid_t pid = fork_child([&] {
    DirectoryStore store(directory.path());
    DyingStore dying(store);
    // The rank with the greater address connects, so the other waits for it.
    make_gloo_process_group({.rank = 0, .size = 2, .address = "127.0.0.2"}, dying);
    return 0;
  });
  REQUIRE(wait_for_exit(pid, milliseconds(20000)).has_value());
  DirectoryStore store(directory.path());
  std::stop_source stop;
  check_abort_ends(
      "meeting, dead peer", [&] { meet_nobody(store, stop.get_token(), 1); }, [&] { stop.request_stop(); });
}

TEST_CASE("an intruder that talks to a rank breaks its meeting and not its process") {
  MemoryStore store;
  End end;
  std::thread meeting([&] { end = end_of([&] { meet_nobody(store, {}); }); });
  const std::string published = store.get("gloo/0", milliseconds(20000), {});
  sockaddr_in address{};
  REQUIRE(published.size() >= sizeof address);
  std::memcpy(&address, published.data(), sizeof address);
  const int intruder = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(connect(intruder, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  const std::array<std::size_t, 6> message_nobody_awaits{48, 1, 12345, 0, 0, 0};
  REQUIRE(write(intruder, message_nobody_awaits.data(), sizeof message_nobody_awaits) ==
          static_cast<ssize_t>(sizeof message_nobody_awaits));
  char byte = 0;
  CHECK(read(intruder, &byte, 1) == 0);  // rank 0 has closed it
  close(intruder);
  store.set("gloo/1", published, {});
  meeting.join();
  CHECK(end.exit_code == kExitWorkerPeerLost);
}

int entries_of(const char* directory) {
  return static_cast<int>(std::distance(std::filesystem::directory_iterator(directory), {}));
}
std::string descriptors() {
  std::string text;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed;  // errors of the iterator's own descriptor
    text +=
        " " + entry.path().filename().string() + "=" + std::filesystem::read_symlink(entry, closed).string();
  }
  return text;
}

int count_threads() { return entries_of("/proc/self/task"); }
// A joined thread is in /proc a moment longer: the kernel wakes pthread_join() before it takes the thread
// out.
bool at_most_threads(int count) {
  return eventually([&] { return count_threads() <= count; });
}

// Steps of three leaves of ones, one per rank; every element of the sum is 3.
class Stepping {
 public:
  explicit Stepping(ProcessGroup& group)
      : exchange_(make_tree_exchange(group, *arithmetic_, {{0, kDirectBytes}})), world_(group.size()) {}
  void step() {
    const float* const partial = leaf_.data();
    exchange_->begin(world_, sum_.data());
    exchange_->send(0, {&partial, 1}, *arithmetic_->make_stream());
    exchange_->finish();
    if (sum_ != std::vector<float>(sum_.size(), 3)) throw std::logic_error("wrong sum");
  }

 private:
  const std::unique_ptr<Arithmetic> arithmetic_ = make_cpu_arithmetic();
  std::vector<float> leaf_ = std::vector<float>(kDirectBytes, 1), sum_ = std::vector<float>(kDirectBytes);
  const std::unique_ptr<GradientExchange> exchange_;
  const int world_;
};

TEST_CASE("fifty process groups follow each other in one process, and nothing of them stays") {
  MemoryStore store;
  std::string after_first;
  int threads_after_first = 0;
  for (int generation = 1; generation <= 50; ++generation) {
    auto ranks = meet(3, store, std::to_string(generation) + "/");
    std::vector<std::thread> threads;
    std::array<End, 3> ends;
    std::latch first_steps(3);
    for (int rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        Stepping stepping(*ranks[rank]);
        stepping.step();
        first_steps.count_down();
        // Rank 0 gives up at some point of the next steps.
        ends[rank] = end_of([&] {
          for (;;) stepping.step();
        });
        ranks[rank]->abort();
      });
    }
    first_steps.wait();
    std::this_thread::sleep_for(milliseconds(generation % 10));
    ranks[0]->abort();
    for (std::thread& thread : threads) thread.join();
    for (const End& end : ends) CHECK(end.exit_code == kExitWorkerPeerLost);
    ranks.clear();
    if (generation == 1) {
      after_first = descriptors();
      threads_after_first = count_threads();
    }
  }
  CHECK(at_most_threads(threads_after_first));
  CHECK(descriptors() == after_first);
  MESSAGE(after_first);
}

TEST_CASE("ranks whose peer is killed again and again meet the next one, and nothing stays") {
  std::string after_first;
  int threads_after_first = 0;
  for (int generation = 1; generation <= 10; ++generation) {
    const Folder directory;
    DirectoryStore store(directory.path());
    const pid_t peer = fork_child([&] {
      const auto group = connect(2, 3, store, milliseconds(60000));
      for (Stepping stepping(*group);;) stepping.step();
      return 0;
    });
    std::vector<std::thread> threads;
    std::array<End, 2> ends;
    std::latch first_steps(2);
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        const auto group = connect(rank, 3, store, milliseconds(60000));
        Stepping stepping(*group);
        stepping.step();
        first_steps.count_down();
        ends[rank] = end_of([&] {
          for (;;) stepping.step();
        });
        group->abort();
      });
    }
    first_steps.wait();
    std::this_thread::sleep_for(milliseconds(generation));
    const Stopwatch since;
    kill(peer, SIGKILL);
    for (std::thread& thread : threads) thread.join();
    CHECK(since.fair() < kSoon);
    wait_for_exit(peer, milliseconds(10000));
    for (const End& end : ends) CHECK(end.exit_code == kExitWorkerPeerLost);
    if (generation == 1) {
      after_first = descriptors();
      threads_after_first = count_threads();
    }
  }
  CHECK(at_most_threads(threads_after_first));
  CHECK(descriptors() == after_first);
}

}  // namespace
}  // namespace dtrun::worker::abort_test
