// The launches, reads and writes of a whole step beside its microbatches (traffic_test.cc has those):
// copying, adding up, the norm and the update, each vector as often as the arithmetic of a step needs it.
#include <doctest/doctest.h>

#include <map>
#include <string>

#include "tests/cuda_on_cpu/traffic.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "worker/config/config.h"
#include "worker/device/cuda_device.h"
#include "worker/optim/optimizer.h"
#include "worker/trainer/gradient_step.h"
#include "worker/trainer/recovery/replica.h"

namespace dtrun::worker::step_traffic_test {
namespace {

using cuda_on_cpu::Launch;

constexpr int kMicrobatches = 8;

JobConfig config_in(const dtrun::test::Folder& folder) {
  std::string text;
  for (int i = 0; i < 4096; ++i) text += static_cast<char>('a' + i * i % 23);
  dtrun::test::write_text(folder.path() / "text", text);
  const Result<JobConfig> config = parse_config(R"({
    "output_dir": "none", "device": "cuda",
    "model": { "type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 64, "n_positions": 32, "vocab_size": 256 },
    "data": { "type": "text", "path": ")" + (folder.path() / "text").string() +
                                                    R"(", "sequence_length": 32, "test_fraction": 0.1 },
    "train": { "max_steps": 4, "global_batch_size": 16, "micro_batch_size": 2, "optim": "adamw", "bf16": true,
               "max_grad_norm": 1.0, "learning_rate": 0.001, "save_steps": 0, "eval_steps": 0 } })",
                                                "job.json", {});
  REQUIRE(config.ok());
  return config.value();
}

// By name, all launches of a step. Removes template arguments from kernels' names.
std::map<std::string, Launch> launches_of_a_step(const JobConfig& config, std::size_t* parameters) {
  const Datasets data = load_datasets(config);
  Replica replica(config, data, 1, make_cuda_device(0, {}, {.graphs = false}));
  const auto alone = make_single_process_group();
  StepClock clock;
  GradientStep gradient_step(config.train, replica.program, *data.train, *alone, *replica.device,
                             replica.lanes, clock);
  const BatchSampler batches(data.train->size(), config.train.global_batch_size,
                             config.train.micro_batch_size, config.train.num_train_epochs,
                             config.train.max_steps, config.train.dataloader_drop_last);
  TrainState start = replica.snapshot();
  start.parameters.resize(replica.program.size);
  initialize_parameters(replica.program, config.train.seed, start.parameters);
  replica.restore(start);
  std::map<std::string, Launch> launches;
  for (int step = 0; step < 2; ++step) {
    cuda_on_cpu::list_launches();
    float* const sum = gradient_step.run(batches.step(0), replica.state.parameters.data());
    REQUIRE(batches.step(0).leaves == kMicrobatches);
    replica.update(update_rule(config.train, 0, 0), sum);
    launches.clear();
    for (const Launch& launch : cuda_on_cpu::listed_launches()) {
      Launch& all = launches[launch.name.substr(0, launch.name.find('<'))];
      ++all.flops;  // their number
      all.read += launch.read, all.written += launch.written;
      all.read_again += launch.read_again, all.written_again += launch.written_again;
    }
  }
  *parameters = replica.program.size;
  return launches;
}

TEST_CASE("a step adds microbatches in place, and updates in one pass behind that of the norm") {
  const dtrun::test::Folder folder;
  std::size_t parameters = 0;
  auto launches = launches_of_a_step(config_in(folder), &parameters);
  const std::size_t vector = parameters * sizeof(float), all = vector + kStatisticsFloats * sizeof(float);

  const Launch& additions = launches["add_right_kernel"];
  CHECK(additions.read == (kMicrobatches - 1) * 2 * all);
  CHECK(additions.written == (kMicrobatches - 1) * all);

  // And the number of targets; a double of each block is left for a second kernel.
  const Launch& norm = launches["square_norm_kernel"];
  CHECK(norm.flops == 1);
  CHECK(norm.read == vector + sizeof(float));
  CHECK(norm.written % sizeof(double) == 0);
  CHECK(launches["square_norm_total_kernel"].read == norm.written);

  // Gradient, parameter and both means; these again, and the parameter in bf16.
  const Launch& update = launches["update_kernel"];
  CHECK(update.flops == 1);
  CHECK(update.read == 4 * vector);
  CHECK(update.written == 3 * vector + vector / 2);

  // To the GPU and there to their place; a step's statistics and norm to the host.
  CHECK(launches["copy"].flops == 2 * kMicrobatches + 2);

  // All others are the microbatches' (traffic_test.cc).
  for (const auto& entry : launches) {
    const std::string& name = entry.first;
    const Launch& launch = entry.second;
    CAPTURE(name);
    const bool of_step = name == "add_right_kernel" || name == "square_norm_kernel" ||
                         name == "square_norm_total_kernel" || name == "update_kernel" || name == "copy";
    if (!of_step) CHECK(static_cast<int>(launch.flops) % kMicrobatches == 0);
    CHECK(launch.written_again == 0);
  }
}

}  // namespace
}  // namespace dtrun::worker::step_traffic_test
