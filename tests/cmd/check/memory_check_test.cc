#include "cmd/check/memory_check.h"

#include <doctest/doctest.h>

namespace dtrun::memory_check_test {

using namespace dtrun::cmd;

TEST_CASE("the workers that other tasks start on a node need memory too") {
  worker::JobConfig config;
  config.output_dir = "out";
  config.model = {.type = worker::ModelType::kMlp, .hidden_sizes = {8}};
  config.data.type = worker::DataType::kSynthetic;
  JobSpec spec;
  spec.program = BuiltinTrainer{
      .worker_binary = "w", .config_json = worker::to_canonical_json(config), .output_dir = "out"};
  const worker::Available for_one{.bytes = 200 << 20, .by = "the test"};
  CHECK(check_memory(spec, for_one).ok());
  spec.local_world_size = 8;
  const Status refused = check_memory(spec, for_one);
  CHECK_MESSAGE(refused.message().starts_with("not enough memory: 8 workers need"), refused.message());
}

worker::JobConfig small_resnet() {
  worker::JobConfig config;
  config.output_dir = "out";
  config.model.type = worker::ModelType::kResnet;
  config.model.stem = worker::StemType::kCifar;
  config.data.type = worker::DataType::kSynthetic;
  return config;
}

TEST_CASE("microbatches in lock step wait for the nodes whose memory they need") {
  worker::JobConfig config = small_resnet();
  config.train.batch_norm_group = 0;
  JobSpec spec;
  spec.program = BuiltinTrainer{
      .worker_binary = "w", .config_json = worker::to_canonical_json(config), .output_dir = "out"};
  const auto least = [&](std::uint64_t megabytes) {
    const worker::Available available{.bytes = megabytes << 20, .by = "the test"};
    if (!check_memory(spec, available).ok()) return 0;
    find_least_workers(&spec, available);
    return std::get<BuiltinTrainer>(spec.program).least_workers;
  };
  CHECK(least(100000) == 1);
  std::uint64_t few = 100000;
  for (std::uint64_t too_few = 0; few - too_few > 1;) {
    const std::uint64_t between = too_few + (few - too_few) / 2;
    (least(between) == 0 ? too_few : few) = between;
  }
  spec.nodes = {.min = 1, .max = 4};
  CHECK(least(few) == 1);
  CHECK(least(few - 1) == 2);
}

TEST_CASE("microbatches in lock step wait for as many GPUs as have the memory, on one node too") {
  worker::JobConfig config = small_resnet();
  config.train.global_batch_size = 64, config.train.micro_batch_size = 8;
  const worker::Available little{.bytes = 1 << 20, .by = "the test"};  // of the host
  const auto spec_of = [&](int group, std::uint64_t gpu_bytes, int nproc) {
    config.train.batch_norm_group = group;
    JobSpec spec;
    spec.nproc = nproc;
    spec.gpus.assign(nproc, {.name = "Small", .memory = gpu_bytes});
    spec.program = BuiltinTrainer{.worker_binary = "w",
                                  .config_json = worker::to_canonical_json(config),
                                  .output_dir = "out",
                                  .cuda = true};
    return spec;
  };
  const auto least = [&](const JobSpec& one) {
    JobSpec spec = one;
    find_least_workers(&spec, little);
    return std::get<BuiltinTrainer>(spec.program).least_workers;
  };
  std::uint64_t of_eight = 1, enough = std::uint64_t{64} << 30;  // bytes
  CHECK(least(spec_of(0, enough, 8)) == 1);
  while (enough - of_eight > 1) {
    const std::uint64_t between = of_eight + (enough - of_eight) / 2;
    (check_memory(spec_of(0, between, 8), little).ok() ? enough : of_eight) = between;
  }
  CHECK(least(spec_of(0, enough, 8)) == 8);
  CHECK(least(spec_of(0, enough * 3 / 2, 8)) == 4);  // two microbatches each, beside an evaluation's
  const std::string refused = check_memory(spec_of(0, enough * 6 / 5, 4), little).message();
  CHECK_MESSAGE(refused.starts_with("not enough memory: the worker needs "), refused);
  CHECK_MESSAGE(refused.find("(each GPU, Small)") != std::string::npos, refused);
  CHECK_MESSAGE(refused.find("--nnodes 2") != std::string::npos, refused);
  CHECK(check_memory(spec_of(1, enough, 4), little).ok());  // nothing is known of the others' need
  CHECK(least(spec_of(1, enough, 4)) == 1);
  CHECK(check_memory(spec_of(0, 0, 4), little).ok());
}

}  // namespace dtrun::memory_check_test
