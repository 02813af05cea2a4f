// The choice of the checkpoint that a run begins with, among those of its nodes. Only the choice: nothing is
// trained.
#include <doctest/doctest.h>

#include <fstream>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/worker/collective/ranks.h"
#include "worker/checkpoint/layout.h"
#include "worker/optim/optimizer.h"
#include "worker/trainer/recovery/resume.h"

namespace dtrun::worker::choose_start_test {
namespace {

using dtrun::test::contains;
using dtrun::test::Folder;

namespace fs = std::filesystem;

const Program kNetwork =
    make_program(ModelConfig{.type = ModelType::kConvnet}, {.shape = {1, 28, 28}, .classes = 10});

std::vector<OptimizerSlot> slots_of(const JobConfig& config) {
  std::vector<OptimizerSlot> slots;
  for (const std::string& name : slot_names(config.train))
    slots.push_back({name, std::vector<float>(kNetwork.size)});
  return slots;
}

// Output directories, each on a node of its own, and the checkpoints in them.
struct Disks {
  JobConfig config(const std::string& output) const {
    JobConfig config;
    config.output_dir = (directory.path() / output).string();
    config.model.type = ModelType::kConvnet;
    config.data = {DataType::kFashionMnist, "/data"};
    return config;
  }
  // Parameters that tell step and disk apart.
  static float value(const std::string& output, std::int64_t step) {
    return static_cast<float>(step) + static_cast<float>(output[0]) / 256;
  }
  void save(const std::string& output, std::int64_t step) const { save(config(output), output, step); }
  void save(const JobConfig& config, const std::string& output, std::int64_t step) const {
    const std::vector<float> parameters(kNetwork.size, value(output, step));
    save_checkpoint(config.output_dir, kNetwork,
                    {step, parameters, slots_of(config), to_canonical_json(config)}, 0);
  }
  fs::path checkpoint(const std::string& output, std::int64_t step) const {
    return checkpoints_directory(directory.path() / output) / step_name(step);
  }
  void damage(const std::string& output, std::int64_t step) const {
    fs::resize_file(checkpoint(output, step) / kModelFile, 100);
  }
  Folder directory;
};

struct Start : ResumePoint {
  TrainState state;  // that the rank then has; hides what it was sent
};

// The choice of ranks with these configs, each the only one of its node. `replicas`: each rank's state.
// `copied_in`: the generations of those that are copies from their host's memory.
Start choose(const std::vector<JobConfig>& nodes, std::vector<TrainState> replicas, std::int64_t generation,
             std::vector<std::int64_t> copied_in = {}) {
  copied_in.resize(nodes.size());
  std::vector<Start> chosen(nodes.size());
  run_as_threads(static_cast<int>(nodes.size()), [&](ProcessGroup& group) {
    const int rank = group.rank();
    const RankInGeneration place{rank, group.size(), 0, generation};
    TrainState& own = replicas[rank];
    const Held held{.step = own.parameters.empty() ? std::nullopt : std::optional(own.step),
                    .copied_in = copied_in[rank],
                    .snapshot = [&own] { return own; }};
    chosen[rank] = {choose_start(nodes[rank], place, kNetwork, held, group, [](const std::string&) {}), own};
    if (chosen[rank].ResumePoint::state) chosen[rank].state = *chosen[rank].ResumePoint::state;
  });
  for (const Start& start : chosen) {
    CHECK(start.from == chosen[0].from);
    CHECK(start.source_rank == chosen[0].source_rank);
    CHECK(start.config_json == chosen[0].config_json);
    CHECK(start.state.step == chosen[0].state.step);
    CHECK(start.state.parameters == chosen[0].state.parameters);
  }
  return chosen[0];
}

Start choose(const std::vector<JobConfig>& nodes, std::int64_t generation = 1) {
  std::vector<TrainState> replicas(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) replicas[i].optimizer = slots_of(nodes[i]);
  return choose(nodes, std::move(replicas), generation);
}

void check_from(const Start& start, int rank, const std::string& output, std::int64_t step) {
  CHECK(start.from == ResumePoint::kCheckpoint);
  CHECK(start.source_rank == rank);
  CHECK(start.state.step == step);
  CHECK(start.state.parameters == std::vector<float>(kNetwork.size, Disks::value(output, step)));
}

// The error that a lone rank ends with.
WorkerError refused_start(const JobConfig& config, std::int64_t generation = 1) {
  try {
    choose({config}, generation);
  } catch (const WorkerError& error) {
    return error;
  }
  FAIL("was not refused");
  return WorkerError(0, "");
}

TEST_CASE("where no node holds a checkpoint a run begins with its initial values") {
  const Disks disks;
  std::vector<float> initial(kNetwork.size);
  initialize_parameters(kNetwork, disks.config("a").train.seed, initial);
  for (const std::int64_t generation : {1, 2}) {
    const Start start = choose({disks.config("a"), disks.config("b")}, generation);
    CHECK(start.from == ResumePoint::kInitialValues);
    CHECK(start.state.step == 0);
    CHECK(start.state.parameters == initial);
  }
}

// Values that tell step and replica apart.
TrainState replica(std::int64_t step, const std::string& of = "r") {
  JobConfig config;
  config.model.type = ModelType::kConvnet;
  TrainState state{.step = step, .parameters = {}, .optimizer = slots_of(config), .config_json = "{}"};
  state.parameters.assign(kNetwork.size, Disks::value(of, step));
  for (OptimizerSlot& slot : state.optimizer) slot.values.assign(kNetwork.size, -Disks::value(of, step));
  return state;
}

TEST_CASE("where a replica is left, the furthest one is where all go on, and no disk is looked at") {
  const Disks disks;
  const auto a = disks.config("a"), b = disks.config("b"), c = disks.config("c"), d = disks.config("d");
  disks.save("a", 50);
  disks.damage("a", 50);
  const TrainState none{.step = 0, .parameters = {}, .optimizer = slots_of(a), .config_json = {}};
  const Start start = choose({a, b, c, d}, {none, replica(7), replica(8), replica(8)}, 2);
  CHECK(start.from == ResumePoint::kReplica);
  CHECK(start.source_rank == 2);
  CHECK(start.state.step == 8);
  CHECK(start.state.parameters == replica(8).parameters);
  CHECK(start.state.optimizer.at(0).values == replica(8).optimizer.at(0).values);
  const Start alone = choose({a, b}, {replica(0), none}, 2);  // before its first step it is a replica too
  CHECK(alone.from == ResumePoint::kReplica);
  CHECK(alone.state.parameters == replica(0).parameters);
}

TEST_CASE("copies of the last generation count, and nothing else of them where a replica is left") {
  const Disks disks;
  const auto a = disks.config("a"), b = disks.config("b"), c = disks.config("c");
  const TrainState none{.step = 0, .parameters = {}, .optimizer = slots_of(a), .config_json = {}};
  const auto from_copy = [&](const Start& start, int rank, const TrainState& wanted) {
    CHECK(start.from == ResumePoint::kInMemoryCheckpoint);
    CHECK(start.source_rank == rank);
    CHECK(start.state.step == wanted.step);
    CHECK(start.state.parameters == wanted.parameters);
    CHECK(start.state.optimizer.at(0).values == wanted.optimizer.at(0).values);
  };
  from_copy(choose({a, b, c}, {none, replica(7), replica(8)}, 2, {0, 1, 1}), 2, replica(8));
  from_copy(choose({a, b}, {replica(8, "x"), replica(8, "x")}, 2, {1, 1}), 0, replica(8, "x"));
  // The second generation had gone back, and came by another way to where it is.
  from_copy(choose({a, b, c}, {replica(9, "x"), replica(7, "y"), none}, 3, {1, 2, 0}), 1, replica(7, "y"));
  from_copy(choose({a, b}, {replica(9, "x"), replica(9, "y")}, 3, {1, 2}), 1, replica(9, "y"));

  for (const std::int64_t step : {6, 7, 8}) {
    const Start start = choose({a, b}, {replica(step, "x"), replica(7, "y")}, 3, {2, 0});
    CHECK(start.from == ResumePoint::kReplica);
    CHECK(start.source_rank == 1);
    CHECK(start.state.parameters == replica(7, "y").parameters);
  }
}

TEST_CASE("a checkpoint of a later step is preferred to copies, if it is good") {
  const Disks disks;
  const auto a = disks.config("a"), b = disks.config("b");
  const auto at = [&](std::int64_t step) {
    return choose({a, b}, {replica(step), replica(step)}, 2, {1, 1});
  };
  disks.save("b", 8);
  CHECK(at(8).from == ResumePoint::kInMemoryCheckpoint);
  CHECK(at(9).from == ResumePoint::kInMemoryCheckpoint);
  check_from(at(7), 1, "b", 8);
  disks.save("a", 6);
  disks.damage("b", 8);
  CHECK(at(7).from == ResumePoint::kInMemoryCheckpoint);
  check_from(at(5), 0, "a", 6);
}

TEST_CASE("the newest checkpoint of any node is where all begin, in every generation") {
  const Disks disks;
  const auto a = disks.config("a"), b = disks.config("b"), c = disks.config("c");
  disks.save("b", 5);
  for (const std::int64_t generation : {1, 2, 3}) {
    CAPTURE(generation);
    check_from(choose({a, b, c}, generation), 1, "b", 5);
    check_from(choose({b, a}, generation), 0, "b", 5);
  }
  disks.save("a", 5);
  disks.save("c", 6);
  check_from(choose({a, b}), 0, "a", 5);  // among equals that of the lowest rank
  check_from(choose({b, a}), 0, "b", 5);
  check_from(choose({a, b, c}, 2), 2, "c", 6);
}

TEST_CASE("a node whose checkpoints are all damaged begins with another node's good one") {
  const Disks disks;
  const auto damaged = disks.config("damaged"), good = disks.config("good");
  for (const std::int64_t step : {8, 9}) disks.save("damaged", step), disks.damage("damaged", step);
  disks.save("good", 5);
  for (const std::int64_t generation : {1, 2}) {
    CAPTURE(generation);
    check_from(choose({damaged, good}, generation), 1, "good", 5);
    check_from(choose({good, damaged}, generation), 0, "good", 5);
  }
  CHECK(refused_start(damaged).exit_code() == kExitNoInput);  // alone it has nothing to begin with
}

TEST_CASE("a damaged checkpoint is passed over for an older one, of whichever node") {
  const Disks disks;
  const auto a = disks.config("a"), b = disks.config("b");
  disks.save("a", 5);
  disks.save("b", 6);
  disks.save("b", 7);
  disks.damage("b", 7);
  check_from(choose({a, b}), 1, "b", 6);
  disks.damage("b", 6);
  check_from(choose({a, b}), 0, "a", 5);
}

TEST_CASE("a run that was to begin afresh goes on from its own checkpoints in later generations") {
  const Disks disks;
  JobConfig config = disks.config("a");
  config.train.resume_from_checkpoint = ResumeFrom("none");
  CHECK(choose({config}).from == ResumePoint::kInitialValues);
  disks.save("a", 5);
  CHECK(refused_start(config).exit_code() == kExitConfig);
  check_from(choose({config}, 2), 0, "a", 5);
}

TEST_CASE("a checkpoint that the config names is rank 0's, until the run has a newer one") {
  const Disks disks;
  disks.save("named", 5);
  JobConfig config = disks.config("a");
  config.train.resume_from_checkpoint = ResumeFrom(disks.checkpoint("named", 5).string());
  for (const std::int64_t generation : {1, 2}) check_from(choose({config}, generation), 0, "named", 5);
  disks.save("a", 4);
  for (const std::int64_t generation : {1, 2}) check_from(choose({config}, generation), 0, "named", 5);
  disks.save("a", 6);
  CHECK(refused_start(config).exit_code() == kExitConfig);
  check_from(choose({config}, 2), 0, "a", 6);
}

TEST_CASE("the state of another optimizer is refused, and both are named") {
  struct Kind {
    OptimizerType optim;
    double momentum;
    const char* slots;
    int replicas = 1;
  };
  const std::vector<Kind> kinds = {
      {OptimizerType::kSgd, 0.9, "momentum_buffer"},
      {OptimizerType::kSgd, 0, "none"},
      {OptimizerType::kAdamW, 0.9, "exp_avg and exp_avg_sq"},
      {OptimizerType::kAdamW, 0.9, "replica_0_exp_avg, replica_0_exp_avg_sq and 2 more", 2},
      {OptimizerType::kAdamW, 0.9, "replica_0_exp_avg, replica_0_exp_avg_sq and 6 more", 4}};
  for (const Kind& then : kinds) {
    const Disks disks;
    JobConfig config = disks.config("a");
    config.train.optim = then.optim, config.train.momentum = then.momentum;
    config.train.local_replicas = then.replicas;
    disks.save(config, "a", 5);
    for (const Kind& now : kinds) {
      config.train.optim = now.optim, config.train.momentum = now.momentum;
      config.train.local_replicas = now.replicas;
      if (&now == &then) {
        check_from(choose({config}), 0, "a", 5);
        continue;
      }
      const WorkerError error = refused_start(config);
      CHECK(error.exit_code() == kExitConfig);
      CHECK_MESSAGE(contains(error.what(), std::string("the state of another optimizer (") + then.slots +
                                               " where this one needs " + now.slots + ")"),
                    error.what());
    }
  }
}

}  // namespace
}  // namespace dtrun::worker::choose_start_test
