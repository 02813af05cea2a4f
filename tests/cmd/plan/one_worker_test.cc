// The device of a worker that dtrun starts outside of a job.
#include "cmd/plan/one_worker.h"

#include <doctest/doctest.h>

#include "tests/support/files.h"
#include "tests/support/folder.h"

namespace dtrun::cmd::one_worker_test {
namespace {

constexpr int kCuda13 = 13000;

// With two GPUs that CUDA numbers 0 and 1, and a driver that is new enough.
Machine machine() {
  Machine machine;
  machine.worker_cuda = kCuda13;
  machine.gpus = [](bool) {
    return GpuSight{.gpus = {{.index = 0, .number = 3, .name = "NVIDIA H200"},
                             {.index = 1, .number = 5, .name = "NVIDIA A100"}},
                    .cuda = kCuda13};
  };
  return machine;
}

class Config {
 public:
  Config() {
    test::write_text(
        path(), R"({"model": {"type": "mlp"}, "data": {"type": "synthetic"}, "output_dir": "/nowhere"})");
  }
  std::string path() const { return (folder_ / "job.json").string(); }
  Result<DeviceChoice> on(const Machine& machine, const std::vector<std::string>& overrides) const {
    return device_of_one_worker(path(), overrides, machine);
  }

 private:
  const test::Folder folder_;
};

TEST_CASE("it is the first GPU, or the CPU, as a run with one worker would have it") {
  const Config config;
  for (const char* const device : {"device=auto", "device=cuda"}) {
    const Result<DeviceChoice> choice = config.on(machine(), {device});
    REQUIRE(choice.ok());
    REQUIRE(choice.value().gpus.size() == 1);  // that the other one is of another kind does not matter
    CHECK(choice.value().gpus[0].index == 0);
  }
  Machine unasked = machine();
  unasked.gpus = [](bool) -> GpuSight {
    FAIL("the CPU was asked for");
    return {};
  };
  CHECK(config.on(unasked, {"device=cpu"}).value().gpus.empty());
  Machine without = machine();
  without.worker_cuda = 0;
  const Result<DeviceChoice> cpu = config.on(without, {});
  REQUIRE(cpu.ok());
  CHECK(cpu.value().gpus.empty());
  CHECK(cpu.value().why == "cpu, this dtrun was built without CUDA");
}

TEST_CASE("what a run would be refused for is refused, with the same exit code") {
  const Config config;
  const Result<DeviceChoice> no_gpu = config.on(Machine{.worker_cuda = kCuda13}, {"device=cuda"});
  CHECK(no_gpu.status().exit_code() == 78);
  CHECK(no_gpu.status().message().find(config.path() + ": /device is \"cuda\", but no GPU here") == 0);
  Machine no_bf16;
  no_bf16.bf16 = false;
  CHECK(config.on(no_bf16, {"train.bf16=true"}).status().exit_code() == 78);
  CHECK(config.on(no_bf16, {}).ok());
  CHECK(config.on(machine(), {"train.lanes=3"}).status().exit_code() == 78);
  CHECK(device_of_one_worker(config.path() + ".no", {}, machine()).status().exit_code() == 66);
}

}  // namespace
}  // namespace dtrun::cmd::one_worker_test
