// Workers that are all killed at once, and their replacements, which find the trained state in memory.
#include "worker/trainer/recovery/in_memory_checkpoint.h"

#include <sys/mman.h>

#include <cmath>
#include <limits>

#include "tests/worker/trainer/async_device.h"
#include "tests/worker/trainer/jobs.h"
#include "worker/base/stop_point.h"

namespace dtrun::worker::in_memory_checkpoint_test {
namespace {

// The memory that an agent holds for one of its workers.
class Slot {
 public:
  Slot() = default;
  Slot(Slot&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  ~Slot() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  std::unique_ptr<InMemoryCheckpoint> open(Replica& replica) const {
    return std::make_unique<InMemoryCheckpoint>(replica, dup(descriptor_));
  }

 private:
  int descriptor_ = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
};

JobConfig config_of(const Job& job, const std::string& output, int every) {
  JobConfig config = job.config(output);
  config.train.save_strategy = IntervalStrategy::kNo;
  config.train.max_steps = 16;
  config.recovery.in_memory_checkpoint_steps = every;
  return config;
}

std::unique_ptr<Device> device_of(bool late) {
  return late ? std::make_unique<AsyncDevice>(3) : make_cpu_device();
}

Outcome run_with(const Slot& slot, const JobConfig& config, ProcessGroup& group, bool late, AgentLink& link,
                 std::int64_t generation) {
  const Datasets data = load_datasets(config);
  Replica replica(config, data, 1, device_of(late));
  replica.in_memory_checkpoint = slot.open(replica);
  return train(replica, {group.rank(), group.size(), group.rank(), generation}, group, link);
}

// Both ranks are killed after rank 1's step 6; rank 0 may have done 5 by then. No evaluation was before.
void kill_all(const std::vector<Slot>& slots, const Job& job, const JobConfig& config, bool late) {
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 2; ++rank) {
    pids.push_back(fork_child([&, rank] {
      DirectoryStore store(job.directory.path() /
                           ("store-" + fs::path(config.output_dir).filename().string()));
      const auto group = connect(rank, 2, store, milliseconds(20000));
      TestLink link(rank == 1 ? 6 : -1, true);
      run_with(slots[static_cast<std::size_t>(rank)], config, *group, late, link, 1);
      return 0;
    }));
  }
  CHECK(WIFSIGNALED(wait_for_exit(pids[1], milliseconds(60000)).value_or(0)));
  kill(pids[0], SIGKILL);
  CHECK(wait_for_exit(pids[0], milliseconds(10000)).has_value());
}

// By `world` workers, of which the first have the slots. Returns where they began.
std::int64_t go_on(const std::vector<Slot>& slots, const JobConfig& config, bool late, int world) {
  std::vector<std::int64_t> began_at(static_cast<std::size_t>(world), -1);
  run_as_threads(world, [&](ProcessGroup& group) {
    const Slot empty;
    TestLink link;
    const auto rank = static_cast<std::size_t>(group.rank());
    const Slot& slot = rank < slots.size() ? slots[rank] : empty;
    REQUIRE(run_with(slot, config, group, late, link, 2) == Outcome::kCompleted);
    began_at[rank] = link.first_step_.value_or(-1);
  });
  CHECK(began_at == std::vector<std::int64_t>(began_at.size(), began_at[0]));
  return began_at[0];
}

TEST_CASE("where all workers are killed, they go on with the copies, with the bytes of a quiet run") {
  const Job job;
  JobConfig quiet = config_of(job, "quiet", 0);
  run_job(quiet, 1);
  for (const bool late : {false, true}) {
    for (const int every : {1, 4}) {
      for (const int world : {1, 2, 3}) {
        const std::string output = std::to_string(every) + (late ? "late" : "") + std::to_string(world);
        CAPTURE(output);
        std::vector<Slot> slots(2);
        const JobConfig config = config_of(job, output, every);
        kill_all(slots, job, config, late);
        CHECK_FALSE(has_checkpoints(config.output_dir));
        // The copy of the last step may have been under way.
        const std::int64_t began = go_on(slots, config, late, world);
        CHECK_MESSAGE((every == 4 ? began == 4 : began >= 4 && began <= 6), began);
        CHECK(job.model(output) == job.model("quiet"));
        CHECK(losses(job.metrics(output)) == losses(job.metrics("quiet")));
        CHECK(contains(job.metrics(output), R"("from":"in_memory_checkpoint")"));
      }
    }
  }
}

TEST_CASE("a copy is of this config, its step and its generation, or it is none") {
  const Job job;
  const JobConfig config = config_of(job, "a", 1);
  const Slot slot;
  const Datasets data = load_datasets(config);
  {
    Replica replica(config, data, 1);
    replica.restore({.step = 7,
                     .parameters = std::vector<float>(replica.program.size, 1.5f),
                     .optimizer = {{"momentum_buffer", std::vector<float>(replica.program.size, 2.5f)}},
                     .config_json = {}});
    replica.log.accuracy = 0.25;
    replica.in_memory_checkpoint = slot.open(replica);
    replica.in_memory_checkpoint->start(3);
    replica.in_memory_checkpoint->wait();
  }
  JobConfig other = config;
  other.train.learning_rate = 1;
  Replica intruder(other, data, 1);
  slot.open(intruder);
  CHECK_FALSE(intruder.state.has_values);
  Replica heir(config, data, 1);
  slot.open(heir);
  CHECK(heir.state.has_values);
  CHECK(heir.state.step == 7);
  CHECK(heir.state.copied_in == 3);
  CHECK(heir.log.accuracy == 0.25);
  const TrainState state = heir.snapshot();
  CHECK(state.parameters == std::vector<float>(heir.program.size, 1.5f));
  CHECK(state.optimizer.at(0).values == std::vector<float>(heir.program.size, 2.5f));
  CHECK(state.config_json == to_canonical_json(config));
}

TrainState state_of(const Replica& replica, std::int64_t step, float value) {
  const std::vector<float> values(replica.program.size, value);
  return {.step = step, .parameters = values, .optimizer = {{"momentum_buffer", values}}, .config_json = {}};
}

// Steps 7 and 8, each copied while the device works behind the host's back; `last`: the newest that is
// copied.
void copy_until(std::int64_t last, const JobConfig& config, const Datasets& data, const Slot& slot,
                unsigned seed) {
  Replica replica(config, data, 1, std::make_unique<AsyncDevice>(seed));
  replica.in_memory_checkpoint = slot.open(replica);
  for (std::int64_t step = 7; step <= 8; ++step) {
    replica.restore(state_of(replica, step, static_cast<float>(step)));
    if (step > last) break;
    replica.in_memory_checkpoint->start(step);
    replica.in_memory_checkpoint->wait();
  }
}

void check_copied(std::int64_t step, const JobConfig& config, const Datasets& data, const Slot& slot) {
  Replica heir(config, data, 1);
  slot.open(heir);
  REQUIRE(heir.state.has_values);
  CHECK(heir.state.step == step);
  CHECK(heir.state.copied_in == step);
  const TrainState found = heir.snapshot(), expected = state_of(heir, step, static_cast<float>(step));
  CHECK(found.parameters == expected.parameters);
  CHECK(found.optimizer.at(0).values == expected.optimizer[0].values);
}

TEST_CASE("what changes once the copy has read the vectors is not in it") {
  const Job job;
  const JobConfig config = config_of(job, "a", 1);
  const Datasets data = load_datasets(config);
  for (unsigned seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    const Slot slot;
    copy_until(7, config, data, slot, seed);
    check_copied(7, config, data, slot);
  }
}

TEST_CASE("a copy waits until the one before it is whole") {
  const Job job;
  const JobConfig config = config_of(job, "a", 1);
  const Datasets data = load_datasets(config);
  stop_point_hook = [](StopPoint point) {
    if (point == StopPoint::kInMemoryCheckpointing) std::this_thread::sleep_for(milliseconds(20));
  };
  const Slot slot;
  copy_until(8, config, data, slot, 1);
  stop_point_hook = nullptr;
  check_copied(8, config, data, slot);
}

TEST_CASE("parameters that are not finite replace no copy") {
  const Job job;
  const JobConfig config = config_of(job, "a", 1);
  const Datasets data = load_datasets(config);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    const Slot slot;
    Replica replica(config, data, 1);
    TrainState state = replica.snapshot();
    state.parameters.assign(replica.program.size, 1);
    replica.in_memory_checkpoint = slot.open(replica);
    for (state.step = 1; state.step < 4; ++state.step) {
      if (state.step > 1) state.parameters.back() = bad;
      replica.restore(state);
      replica.in_memory_checkpoint->start(1);
      replica.in_memory_checkpoint->wait();
    }
    Replica heir(config, data, 1);
    slot.open(heir);
    CHECK(heir.state.step == 1);
  }
}

}  // namespace
}  // namespace dtrun::worker::in_memory_checkpoint_test
