// The exchange of gradients between GPUs, on the stand-ins for CUDA and for NCCL, ranks being threads with a
// GPU each: the tree's sums in any order that streams and messages take, and after any fault a step's sum is
// whole or the step has failed.
#include <doctest/doctest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda_on_cpu/counters.h"
#include "tests/cuda_on_cpu/machine.h"
#include "tests/cuda_on_cpu/nccl_faults.h"
#include "tests/cuda_on_cpu/settings.h"
#include "tests/support/clock.h"
#include "tests/worker/reduction/plain_sum.h"
#include "worker/base/error.h"
#include "worker/base/pulse.h"
#include "worker/collective/device_exchange.h"
#include "worker/device/cuda/nccl/bootstrap.h"
#include "worker/device/cuda_device.h"
#include "worker/reduction/accumulator.h"

namespace dtrun::worker::exchange_test {
namespace {

using cuda_on_cpu::plan_nccl_faults;
using std::chrono::milliseconds;

// The connection between ranks that are threads, besides NCCL: one generation.
struct Generation {
  explicit Generation(int world, std::vector<std::string> hosts = {})
      : world(world), hosts(std::move(hosts)), everybody(world) {}
  const int world;
  const std::vector<std::string> hosts;  // [rank]; empty: as NCCL has it
  std::barrier<> everybody;
  std::mutex mutex;
  std::vector<std::byte> records;
  std::atomic<bool> given_up = false;
  std::atomic<int> at_end = 0;  // ranks
  bool healthy = false;         // nothing is to go wrong
  milliseconds patience{400};
};

// Nothing goes through the host but the barrier at the end.
class OnlyRank final : public ProcessGroup {
 public:
  OnlyRank(Generation& generation, int rank) : generation_(generation), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return generation_.world; }
  std::unique_ptr<Work> start(std::span<const OutMessage>, std::span<const InMessage>) override {
    return std::make_unique<Barrier>(generation_.everybody);
  }
  void abort() noexcept override {}
  void check() const override {}

 private:
  struct Barrier final : Work {
    explicit Barrier(std::barrier<>& everybody) : everybody(everybody) {}
    void wait() override { everybody.arrive_and_wait(); }
    std::barrier<>& everybody;
  };
  Generation& generation_;
  const int rank_;
};

class ElsewhereLinks final : public DeviceCommunicator {
 public:
  ElsewhereLinks(std::unique_ptr<DeviceCommunicator> links, std::vector<std::string> hosts)
      : links_(std::move(links)), hosts_(std::move(hosts)) {}
  const std::vector<std::string>& hosts() const override { return hosts_; }
  void exchange(Stream& stream, std::span<const OutFloats> out, std::span<const InFloats> in) override {
    links_->exchange(stream, out, in);
  }
  void wait(Stream& stream) override { links_->wait(stream); }

 private:
  const std::unique_ptr<DeviceCommunicator> links_;
  const std::vector<std::string> hosts_;
};

constexpr std::size_t kSize = 90000;  // the first two buckets go by slices from three ranks on
const std::vector<VectorRange> kBuckets{{50000, 90000}, {10000, 50000}, {9, 10000}, {0, 9}};

std::unique_ptr<DeviceCommunicator> links_of(Generation& generation, Device& device, int rank) {
  const auto all_gather = [&generation, rank](std::span<std::byte> all) {
    const std::size_t record = all.size() / static_cast<std::size_t>(generation.world);
    {
      std::lock_guard lock(generation.mutex);
      generation.records.resize(all.size());
      std::memcpy(generation.records.data() + record * static_cast<std::size_t>(rank),
                  all.data() + record * static_cast<std::size_t>(rank), record);
    }
    generation.everybody.arrive_and_wait();
    std::memcpy(all.data(), generation.records.data(), all.size());
  };
  const auto check = [&generation] {
    if (generation.given_up) throw WorkerError(kExitWorkerPeerLost, "given up");
  };
  std::unique_ptr<DeviceCommunicator> links = device.make_links({.rank = rank,
                                                                 .size = generation.world,
                                                                 .all_gather = all_gather,
                                                                 .check = check,
                                                                 .meeting = generation.patience,
                                                                 .patience = generation.patience});
  if (generation.hosts.empty()) return links;
  return std::make_unique<ElsewhereLinks>(std::move(links), generation.hosts);
}

// One rank's part in a generation: the sum of each step that was whole.
std::vector<Vector> take_part(Generation& generation, int rank,
                              const std::vector<std::vector<Vector>>& steps) {
  OnlyRank group(generation, rank);
  const std::unique_ptr<Device> device = make_cuda_device(rank);
  Arithmetic& arithmetic = device->arithmetic();
  const auto lane = arithmetic.make_stream();
  const Buffer sum = arithmetic.allocate(Where::kDevice, kSize);
  std::vector<Vector> sums;
  GradientExchange* to = nullptr;
  TreeAccumulator accumulator(
      arithmetic, [&] { return arithmetic.allocate(Where::kDevice, kSize); }, kBuckets, 1,
      [&](int bucket, std::span<const float* const> partials, Stream& stream) {
        to->send(bucket, partials, stream);
      });
  // It is given up before the memory on which it works.
  const std::unique_ptr<GradientExchange> exchange =
      make_device_exchange(group, arithmetic, kBuckets, links_of(generation, *device, rank));
  to = exchange.get();
  try {
    for (const std::vector<Vector>& leaves : steps) {
      const auto count = static_cast<std::int64_t>(leaves.size());
      const LeafRange own = leaves_of_rank(count, rank, generation.world);
      accumulator.begin(own.begin, own.end, count);
      exchange->begin(count, sum.data());
      for (std::int64_t leaf = own.begin; leaf < own.end; ++leaf) {
        arithmetic.copy(*lane, accumulator.take(leaf, *lane), leaves[static_cast<std::size_t>(leaf)].data(),
                        kSize);
        for (int bucket = 0; bucket < static_cast<int>(kBuckets.size()); ++bucket)
          accumulator.complete(leaf, bucket, *lane);
      }
      exchange->finish();
      Vector whole(kSize);
      arithmetic.copy(*lane, whole.data(), sum.data(), kSize);
      lane->wait();
      sums.push_back(std::move(whole));
    }
    // A rank that aborts now may take along what others have not read yet.
    if (generation.healthy) {
      ++generation.at_end;
      exchange->end();
      CHECK(generation.at_end == generation.world);
    }
  } catch (const WorkerError& error) {
    CHECK_MESSAGE(error.exit_code() == kExitWorkerPeerLost, error.what());
    if (generation.healthy) {
      MESSAGE("rank " << rank << ": " << error.what());
      generation.everybody.arrive_and_drop();
    }
    generation.given_up = true;  // as the agents tell the others
  }
  lane->wait();
  return sums;
}

// The results of each rank.
std::vector<std::vector<Vector>> run(Generation& generation, const std::vector<std::vector<Vector>>& steps) {
  cuda_on_cpu::machine.gpus = {0, 1, 2, 3, 4, 5, 6, 7};
  std::vector<std::vector<Vector>> sums(static_cast<std::size_t>(generation.world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < generation.world; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        sums[static_cast<std::size_t>(rank)] = take_part(generation, rank, steps);
      } catch (const WorkerError& error) {
        CHECK_MESSAGE(error.exit_code() == kExitWorkerPeerLost, error.what());
        if (generation.healthy) MESSAGE("rank " << rank << ": " << error.what());
        generation.given_up = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return sums;
}

std::vector<std::vector<Vector>> some_steps(unsigned seed, std::initializer_list<int> counts) {
  std::mt19937 random(seed);
  std::vector<std::vector<Vector>> steps;
  for (const int count : counts) steps.push_back(random_leaves(random, count, kSize));
  return steps;
}

Vector tree_sum_of(const std::vector<Vector>& leaves) {
  return recursive_sum(
      leaves, 0,
      std::size_t{1} << static_cast<unsigned>(tree_height(static_cast<std::int64_t>(leaves.size()))));
}

struct OtherOrders {
  explicit OtherOrders(unsigned seed) {
    cuda_on_cpu::settings = {.streams = cuda_on_cpu::Policy::kRandom, .seed = seed};
  }
  ~OtherOrders() { cuda_on_cpu::settings = {}; }
};

void check_sums(Generation& generation, const std::vector<std::vector<Vector>>& steps) {
  generation.healthy = true;
  const auto sums = run(generation, steps);
  for (const auto& of_rank : sums) {
    REQUIRE(of_rank.size() == steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) CHECK(same_bits(of_rank[i], tree_sum_of(steps[i])));
  }
}

TEST_CASE("any number of ranks, on one host or some, gets the tree's sums to the last bit") {
  const auto steps = some_steps(1, {8, 3, 16, 1});
  for (const int world : {1, 2, 3, 4, 8}) {
    for (const int of_host : {1, 2, 4}) {
      if (world % of_host != 0) continue;
      CAPTURE(world);
      CAPTURE(of_host);
      std::vector<std::string> hosts;
      for (int rank = 0; rank < world; ++rank) hosts.push_back("host" + std::to_string(rank / of_host));
      const OtherOrders orders(static_cast<unsigned>(world * 10 + of_host));
      Generation generation(world, hosts);
      generation.patience = milliseconds(60000);
      check_sums(generation, steps);
    }
  }
}

std::uint64_t groups_of_a_step(int world, const std::vector<std::string>& hosts) {
  Generation generation(world, hosts);
  generation.patience = milliseconds(60000);
  cuda_on_cpu::reset_counters();
  check_sums(generation, some_steps(5, {8, 8}));
  const std::uint64_t of_rank = cuda_on_cpu::counters().nccl_groups / static_cast<std::uint64_t>(world);
  CHECK(of_rank % 2 == 0);
  return of_rank / 2;
}

TEST_CASE("a bucket's later rounds go with the next buckets' first ones, in the same groups of NCCL") {
  // Four buckets, of which two take two rounds each, or four in two levels.
  CHECK(groups_of_a_step(2, {}) == 4);
  CHECK(groups_of_a_step(4, {}) == 4);
  CHECK(groups_of_a_step(4, {"a", "a", "b", "b"}) == 5);
}

TEST_CASE("in every order of streams") {
  const auto steps = some_steps(2, {5, 6});
  const char* const more = std::getenv("DTRUN_TEST_SCHEDULES");
  const unsigned schedules = more == nullptr ? 40 : static_cast<unsigned>(std::atoi(more));
  for (unsigned seed = 1; seed <= schedules; ++seed) {
    CAPTURE(seed);
    const OtherOrders orders(seed);
    const int world = 2 + static_cast<int>(seed % 3);
    Generation generation(
        world, world == 4 ? std::vector<std::string>{"a", "a", "b", "b"} : std::vector<std::string>());
    generation.patience = milliseconds(60000);
    check_sums(generation, steps);
  }
}

TEST_CASE("an exchange that is given up in a step frees no memory on which it still works") {
  cuda_on_cpu::machine.gpus = {0};
  Generation alone(1);
  OnlyRank group(alone, 0);
  const std::unique_ptr<Device> device = make_cuda_device(0);
  Arithmetic& arithmetic = device->arithmetic();
  const auto lane = arithmetic.make_stream();
  const Buffer partial = arithmetic.allocate(Where::kDevice, kSize),
               sum = arithmetic.allocate(Where::kDevice, kSize);
  const Vector values(kSize, 1.5f);
  arithmetic.copy(*lane, partial.data(), values.data(), kSize);
  auto exchange = make_device_exchange(group, arithmetic, kBuckets, links_of(alone, *device, 0));
  exchange->begin(1, sum.data());
  const float* const partials[] = {partial.data()};
  for (int bucket = 0; bucket < static_cast<int>(kBuckets.size()); ++bucket)
    exchange->send(bucket, partials, *lane);
  exchange.reset();
  // The stand-in runs work as late as possible: work without a waiter never runs.
  Vector done(kSize);
  arithmetic.copy(*lane, done.data(), sum.data(), kSize);
  lane->wait();
  CHECK(done == values);
}

// A fault, then a generation of those that are left, then one of all again: a vector that a rank takes for a
// step's sum is that sum. An aborted NCCL leaves NaN in memory here.
void check_fault(const std::string& fault, std::size_t most_whole) {
  CAPTURE(fault);
  const auto steps = some_steps(4, {8, 5, 8, 8});
  std::vector<Vector> right;
  for (const auto& leaves : steps) right.push_back(tree_sum_of(leaves));
  plan_nccl_faults(fault);
  Generation broken(4);
  const test::Stopwatch since;
  const auto sums = run(broken, steps);
  CHECK(since.fair() < milliseconds(8000));
  CHECK(broken.given_up);
  for (const auto& of_rank : sums) {
    CHECK(of_rank.size() <= most_whole);
    for (std::size_t i = 0; i < of_rank.size(); ++i) CHECK(same_bits(of_rank[i], right[i]));
  }
  plan_nccl_faults("");
  for (const int world : {3, 4}) {
    Generation next(world);
    next.patience = milliseconds(60000);
    check_sums(next, steps);
  }
}

TEST_CASE("an init that is stuck, fails or is without a peer is given up") {
  for (const char* const fault : {"init-stuck:2", "init-fails:1"}) check_fault(fault, 0);
}

TEST_CASE(
    "links wait no longer for a silent peer once the generation is given up, however patient they are") {
  plan_nccl_faults("silent:1@3");
  Generation broken(3);
  broken.patience = milliseconds(30000);
  cuda_on_cpu::reset_counters();
  const test::Stopwatch since;
  std::thread agent([&broken] {
    // All ranks have begun the groups of the first step, which never ends, and wait.
    const test::Patience patience(milliseconds(20000));
    while ((cuda_on_cpu::counters().nccl_groups < 3 * kBuckets.size() || Pulse::read() == Pulse::read()) &&
           !patience.is_over())
      std::this_thread::yield();
    CHECK_FALSE(patience.is_over());
    broken.given_up = true;
  });
  run(broken, some_steps(6, {8, 8, 8}));
  agent.join();
  CHECK(since.fair() < broken.patience);
  plan_nccl_faults("");
}

TEST_CASE("that a rank has no NCCL is kept once, however many generations find it") {
  cuda::UseRecord use(false);
  cuda::BootstrapInfo own;
  own.set_why_not("libnccl.so.2 is missing");
  for (int generation = 0; generation < 2; ++generation)
    CHECK_FALSE(
        cuda::exchange_bootstrap_info({.all_gather = [](std::span<std::byte>) {}, .check = {}}, own, use));
  CHECK(
      use.now().fallbacks ==
      std::vector<std::string>{"gradients are exchanged through the hosts' memory, since rank 0 has no NCCL: "
                               "libnccl.so.2 is missing"});
}

TEST_CASE("a rank that is silent, has an error, or never launches loses no step and spoils none") {
  for (const char* const fault : {"silent:1@3", "async-error:2@3:6", "group-stuck:0@3", "silent:3@7"})
    check_fault(fault, 3);
}

}  // namespace
}  // namespace dtrun::worker::exchange_test
