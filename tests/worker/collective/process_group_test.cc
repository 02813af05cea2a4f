#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "tests/support/clock.h"
#include "tests/support/folder.h"
#include "tests/worker/collective/own_operations.h"
#include "tests/worker/collective/ranks.h"
#include "tests/worker/vector/async_arithmetic.h"
#include "worker/collective/gradient_exchange.h"
#include "worker/collective/shared_memory_transport.h"
#include "worker/collective/tags.h"
#include "worker/core/tree.h"
#include "worker/reduction/accumulator.h"
#include "worker/reduction/exchange_plan.h"

namespace dtrun::worker::process_group_test {
namespace {

using dtrun::test::Folder;

using Vector = std::vector<float>;

std::vector<Vector> random_leaves(unsigned seed, std::int64_t count, std::size_t size) {
  std::mt19937 random(seed);
  std::vector<Vector> leaves(count, Vector(size));
  for (Vector& leaf : leaves) {
    for (float& value : leaf) {
      value = std::ldexp(static_cast<float>(random()) * 0x1p-31f - 1, static_cast<int>(random() % 20) - 10);
    }
  }
  return leaves;
}

Vector tree_sum(const std::vector<Vector>& leaves) {
  const auto count = static_cast<std::int64_t>(leaves.size());
  std::vector<Block> blocks;
  std::vector<const float*> inputs;
  for (std::int64_t leaf = 0; leaf < count; ++leaf) {
    blocks.push_back({leaf, 0});
    inputs.push_back(leaves[leaf].data());
  }
  Vector total(leaves[0].size());
  const auto cpu = make_cpu_arithmetic();
  cpu->sum(*cpu->make_stream(), plan_sum(blocks, count), inputs, total.data(), total.size());
  return total;
}

// One rank's part of several steps over one connection.
class Exchanging {
 public:
  // share: memory with the other ranks, instead of messages.
  Exchanging(ProcessGroup& group, const std::vector<VectorRange>& buckets,
             std::unique_ptr<Arithmetic> arithmetic = make_cpu_arithmetic(), bool share = false)
      : rank_(group.rank()),
        world_(group.size()),
        size_(buckets.front().end),
        buckets_(static_cast<int>(buckets.size())),
        arithmetic_(std::move(arithmetic)),
        stream_(arithmetic_->make_stream()),
        sum_(arithmetic_->allocate(Where::kDevice, size_)),
        shared_memory_transport_(share ? std::make_unique<SharedMemoryTransport>(group, size_, buckets.size())
                                       : nullptr),
        accumulator_(
            *arithmetic_, [this] { return new_buffer(); }, buckets, 1,
            [this](int bucket, std::span<const float* const> partials, Stream& stream) {
              exchange_->send(bucket, partials, stream);
            }),
        exchange_(make_tree_exchange(group, *arithmetic_, buckets, shared_memory_transport_.get())) {}

  // A step of these leaves, of which each rank computes its own; returns the sum of all.
  Vector step(
      const std::vector<Vector>& leaves, const std::function<void()>& when_all_is_sent = [] {}) {
    const auto count = static_cast<std::int64_t>(leaves.size());
    const LeafRange own = leaves_of_rank(count, rank_, world_);
    Vector sum(size_, NAN);
    arithmetic_->copy(*stream_, sum_.data(), sum.data(), size_);
    stream_->wait();
    accumulator_.begin(own.begin, own.end, count);
    exchange_->begin(count, sum_.data());
    for (std::int64_t leaf = own.begin; leaf < own.end; ++leaf) {
      arithmetic_->copy(*stream_, accumulator_.take(leaf, *stream_), leaves[leaf].data(), size_);
      for (int bucket = 0; bucket < buckets_; ++bucket) accumulator_.complete(leaf, bucket, *stream_);
    }
    when_all_is_sent();
    exchange_->finish();
    arithmetic_->copy(*stream_, sum.data(), sum_.data(), size_);
    stream_->wait();
    return sum;
  }

  std::vector<double> peer_waits() const { return exchange_->peer_waits(); }
  const SharedMemoryTransport& transport() const { return *shared_memory_transport_; }

 private:
  Buffer new_buffer() {
    return shared_memory_transport_ ? shared_memory_transport_->memory().allocate(size_)
                                    : arithmetic_->allocate(Where::kDevice, size_);
  }

  const int rank_, world_;
  const std::size_t size_;
  const int buckets_;
  const std::unique_ptr<Arithmetic> arithmetic_;
  const std::unique_ptr<Stream> stream_;
  const Buffer sum_;
  const std::unique_ptr<SharedMemoryTransport> shared_memory_transport_;
  TreeAccumulator accumulator_;
  const std::unique_ptr<GradientExchange> exchange_;  // its thread reads what the accumulator has
};

std::unique_ptr<Arithmetic> make_async_arithmetic() { return std::make_unique<AsyncArithmetic>(3); }

// Several steps over one connection, of different numbers of leaves; returns rank 0's sums.
std::vector<Vector> exchange_steps(int world, const std::vector<std::int64_t>& steps,
                                   const std::vector<VectorRange>& buckets,
                                   std::unique_ptr<Arithmetic> (*make_arithmetic)() = make_cpu_arithmetic,
                                   bool share = false) {
  const std::size_t size = buckets.front().end;
  std::vector<std::vector<Vector>> sums(world);
  run_as_threads(world, [&](ProcessGroup& group) {
    Exchanging exchanging(group, buckets, make_arithmetic(), share);
    for (int peer = 0; share && peer < world; ++peer)
      CHECK(exchanging.transport().shares_with(peer) == (peer != group.rank()));
    for (std::size_t step = 0; step < steps.size(); ++step) {
      const auto leaves = random_leaves(static_cast<unsigned>(step), steps[step], size);
      sums[group.rank()].push_back(exchanging.step(leaves));
    }
  });
  for (const auto& rank : sums) CHECK(std::memcmp(rank.back().data(), sums[0].back().data(), size * 4) == 0);
  return sums[0];
}

void check_tree_exchange(const std::vector<VectorRange>& buckets,
                         std::unique_ptr<Arithmetic> (*make_arithmetic)() = make_cpu_arithmetic,
                         bool share = false) {
  const std::vector<std::int64_t> steps{8, 3, 8, 1, 13};
  for (int world = 1; world <= 6; ++world) {
    CAPTURE(world);
    const auto sums = exchange_steps(world, steps, buckets, make_arithmetic, share);
    for (std::size_t step = 0; step < steps.size(); ++step) {
      CAPTURE(step);
      const Vector wanted =
          tree_sum(random_leaves(static_cast<unsigned>(step), steps[step], buckets.front().end));
      CHECK(std::memcmp(sums[step].data(), wanted.data(), wanted.size() * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("a rank knows for which peer's messages it waited with nothing else to do") {
  constexpr int kWorld = 4, kLate = 2, kSteps = 12;
  for (const std::size_t size : {std::size_t{100}, std::size_t{200'000}}) {  // directly, and in slices
    CAPTURE(size);
    const std::vector<Vector> leaves = random_leaves(3, kWorld, size);
    std::vector<std::vector<double>> waits(kWorld);
    const OwnOperations operations;
    std::atomic<int> sent = 0;
    std::chrono::nanoseconds delayed{};
    run_as_threads(kWorld, [&](ProcessGroup& group) {
      Exchanging exchanging(group, {{0, size}});
      test::Stopwatch since;
      for (int step = 1; step <= kSteps; ++step) {
        if (group.rank() == kLate) {
          while (sent < step * (kWorld - 1) || operations.waits_for(kLate) < kWorld - 1)
            std::this_thread::yield();
          // Twice what a peer may have waited for another one by the scheduler's doing.
          const auto delay = std::max<std::chrono::nanoseconds>(milliseconds(20), 2 * since.wall());
          std::this_thread::sleep_for(delay);
          delayed += delay;
          since = {};
        }
        exchanging.step(leaves, [&] { sent += group.rank() != kLate; });
      }
      waits[group.rank()] = exchanging.peer_waits();
    });
    for (int rank = 0; rank < kWorld; ++rank) {
      CAPTURE(rank);
      REQUIRE(waits[rank].size() == kWorld);
      CHECK(waits[rank][rank] == 0);
      if (rank == kLate) continue;
      const double most = *std::ranges::max_element(waits[rank]);
      CHECK(waits[rank][kLate] == most);
      CHECK(most > 0.9 * std::chrono::duration<double>(delayed).count());
    }
  }
}

TEST_CASE("buckets that go directly give the bits of the plain tree sum for 1 to 6 ranks") {
  check_tree_exchange({{700, 2000}, {0, 700}});
}

TEST_CASE("buckets that go by slices give the bits of the plain tree sum for 1 to 6 ranks") {
  const std::size_t large = kDirectBytes / sizeof(float) + 17;  // over the limit from 3 ranks on
  check_tree_exchange({{2 * large, 2 * large + 100}, {large, 2 * large}, {0, large}});
}

TEST_CASE("both ways give these bits too where ranks read each other's memory") {
  const std::size_t large = kDirectBytes / sizeof(float) + 17;
  check_tree_exchange({{large, large + 100}, {0, large}}, make_cpu_arithmetic, true);
}

TEST_CASE("both ways give these bits too where the host cannot read the vectors") {
  const std::size_t large = kDirectBytes / sizeof(float) + 17;
  check_tree_exchange({{large, large + 100}, {0, large}}, make_async_arithmetic);
}

// Another collective with an ear at what is sent.
class Tapped final : public ProcessGroup {
 public:
  using Tap = std::function<void(std::span<const OutMessage>)>;
  Tapped(ProcessGroup& inner, Tap tap) : inner_(inner), tap_(std::move(tap)) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::unique_ptr<Work> start(std::span<const OutMessage> sends,
                              std::span<const InMessage> receives) override {
    tap_(sends);
    return inner_.start(sends, receives);
  }
  void check() const override { inner_.check(); }
  void abort() noexcept override { inner_.abort(); }

 private:
  ProcessGroup& inner_;
  const Tap tap_;
};

// The longest message, in floats, that any of three ranks sends in a step with a bucket of this size.
std::size_t longest_message(std::size_t bucket) {
  std::atomic<std::size_t> longest{0};
  run_as_threads(3, [&](ProcessGroup& group) {
    Tapped tapped(group, [&](std::span<const OutMessage> sends) {
      for (const OutMessage& message : sends) {
        std::size_t known = longest;
        while (known < message.bytes.size() && !longest.compare_exchange_weak(known, message.bytes.size())) {
        }
      }
    });
    Exchanging(tapped, {{0, bucket}}).step(random_leaves(0, 3, bucket));
  });
  return longest / sizeof(float);
}

TEST_CASE("a bucket goes directly as long as a rank sends no more than the limit, and by slices beyond") {
  const std::size_t largest = kDirectBytes / sizeof(float) / 2;  // to two peers
  CHECK(longest_message(largest) == largest);
  CHECK(longest_message(largest + 1) == (largest + 1 + 2) / 3);
}

TEST_CASE("all_gather, broadcast and barrier reach every rank") {
  for (const int world : {1, 2, 3, 4}) {
    run_as_threads(world, [&](ProcessGroup& group) {
      std::vector<std::int64_t> all(world, -1);
      all[group.rank()] = 10 + group.rank();
      group.all_gather(bytes_of(all));
      for (int rank = 0; rank < world; ++rank) CHECK(all[rank] == 10 + rank);
      std::vector<float> values(1000, static_cast<float>(group.rank()));
      group.broadcast(world - 1, bytes_of(values));
      CHECK(values[999] == static_cast<float>(world - 1));
      group.barrier();
    });
  }
}

// Ranks exchange in a loop; the last one does `when_going` to itself after a while.
std::vector<pid_t> ranks_in_a_loop(const Folder& directory, int world, milliseconds timeout,
                                   int signal_to_self) {
  std::vector<pid_t> pids;
  for (int rank = 0; rank < world; ++rank) {
    pids.push_back(fork_child([&, rank] {
      DirectoryStore store(directory.path());
      const auto group = connect(rank, world, store, timeout);
      std::vector<std::byte> all(world * 1000);
      for (int round = 0; round < 1000000; ++round) {
        if (rank == world - 1 && round == 100) raise(signal_to_self);
        group->all_gather(all);
      }
      return 0;
    }));
  }
  return pids;
}

TEST_CASE("a part of the ranks is a group of its own, with the messages of the whole one") {
  run_as_threads(5, [](ProcessGroup& whole) {
    const int begin = whole.rank() < 2 ? 0 : 2, end = whole.rank() < 2 ? 2 : 5;
    const auto group = make_sub_group(whole, begin, end);
    CHECK(group->rank() == whole.rank() - begin);
    CHECK(group->size() == end - begin);
    CHECK(group->global_rank(group->size() - 1) == end - 1);
    // Both at once: a tag of the one does not meet the other's.
    std::vector<int> some(static_cast<std::size_t>(group->size())), all(5);
    some[static_cast<std::size_t>(group->rank())] = 10 + whole.rank();
    all[static_cast<std::size_t>(whole.rank())] = whole.rank();
    group->all_gather(bytes_of(some));
    whole.all_gather(bytes_of(all));
    for (int rank = begin; rank < end; ++rank)
      CHECK(some[static_cast<std::size_t>(rank - begin)] == 10 + rank);
    for (int rank = 0; rank < 5; ++rank) CHECK(all[static_cast<std::size_t>(rank)] == rank);
    std::vector<int> peers;
    const auto work = group->start_gather(kTagStopVote, [&](int rank) {
      return std::as_writable_bytes(std::span(some).subspan(static_cast<std::size_t>(rank), 1));
    });
    work->wait_from(1, [&](int peer, auto, auto) { peers.push_back(peer); });
    for (const int peer : peers) CHECK((peer >= 0 && peer < group->size() && peer != group->rank()));
    CHECK(peers.size() == static_cast<std::size_t>(group->size() - 1));
    CHECK(group->traffic().sent == whole.traffic().sent);
    whole.barrier();
    group->abort();
    CHECK_THROWS_AS(whole.check(), WorkerError);
  });
}

// Each begins with fork(), so in a process that never had a thread: one that was forked beside gloo's threads
// may wait for ThreadSanitizer's locks for ever.
TEST_SUITE_BEGIN("processes");

TEST_CASE("a peer that is killed makes the others fail within a second") {
  Folder directory;
  const auto pids = ranks_in_a_loop(directory, 3, milliseconds(30000), SIGKILL);
  const auto killed = wait_for_exit(pids[2], milliseconds(30000));
  REQUIRE(killed.has_value());
  CHECK(WTERMSIG(*killed) == SIGKILL);
  for (const int rank : {0, 1}) {
    const auto status = wait_for_exit(pids[rank], milliseconds(1000));
    REQUIRE(status.has_value());
    REQUIRE(WIFEXITED(*status));
    CHECK(WEXITSTATUS(*status) == kExitWorkerPeerLost);
  }
}

// Five ranks exchange until the last one kills itself when its `dies_at`-th message of the third step goes
// out (from 0); returns how the others end.
std::vector<int> ends_after_death_in_exchange(int dies_at) {
  const int world = 5;
  const Folder directory;
  const std::vector<VectorRange> buckets{{20000, 40000}, {100, 20000}, {0, 100}};
  std::vector<pid_t> pids;
  for (int rank = 0; rank < world; ++rank) {
    pids.push_back(fork_child([&, rank] {
      DirectoryStore store(directory.path());
      const auto group = connect(rank, world, store, milliseconds(30000));
      int to_come = -1;  // messages before the last one
      Tapped tapped(*group, [&](std::span<const OutMessage> sends) {
        if (to_come >= 0 && (to_come -= static_cast<int>(sends.size())) < 0) raise(SIGKILL);
      });
      Exchanging exchanging(tapped, buckets);
      const auto leaves = random_leaves(0, 5, buckets.front().end);
      for (int round = 0; round < 1000; ++round) {
        if (round == 2 && rank == world - 1) to_come = dies_at;
        exchanging.step(leaves);
      }
      return 0;
    }));
  }
  const auto killed = wait_for_exit(pids[world - 1], milliseconds(60000));
  CHECK((killed.has_value() && WIFSIGNALED(*killed) && WTERMSIG(*killed) == SIGKILL));
  std::vector<int> ends;
  for (int rank = 0; rank < world - 1; ++rank) {
    // Far from the process group's timeout, with which a wait for a message to the dead peer would end.
    const auto status = wait_for_exit(pids[rank], milliseconds(10000));
    ends.push_back(status.has_value() && WIFEXITED(*status) ? WEXITSTATUS(*status) : -1);
  }
  return ends;
}

TEST_CASE("a peer that is killed within an exchange makes the others fail, whatever it had sent") {
  const std::vector<int> lost(4, kExitWorkerPeerLost);
  // A message per peer and bucket, and for each of the two large ones a slice per peer: nothing was sent, the
  // first bucket, all partial sums, all but the last slices.
  for (const int dies_at : {0, 4, 12, 16}) {
    CAPTURE(dies_at);
    CHECK(ends_after_death_in_exchange(dies_at) == lost);
  }
}

TEST_CASE("a peer that hangs makes the others fail after the timeout") {
  Folder directory;
  const auto pids = ranks_in_a_loop(directory, 3, test::soon(milliseconds(700)), SIGSTOP);
  for (const int rank : {0, 1}) {
    const auto status = wait_for_exit(pids[rank], milliseconds(15000));
    REQUIRE(status.has_value());
    REQUIRE(WIFEXITED(*status));
    CHECK(WEXITSTATUS(*status) == kExitWorkerPeerLost);
  }
  kill(pids[2], SIGKILL);
  wait_for_exit(pids[2], milliseconds(5000));
}

TEST_SUITE_END();

TEST_CASE("a peer that never comes is an error that says who waits") {
  MemoryStore store;
  ProcessGroupOptions options{0, 2, "127.0.0.1"};
  options.connect_timeout = milliseconds(300);
  try {
    make_gloo_process_group(options, store);
    FAIL("connected to nobody");
  } catch (const WorkerError& error) {
    CHECK(error.exit_code() == kExitWorkerPeerLost);
  }
}

}  // namespace
}  // namespace dtrun::worker::process_group_test
