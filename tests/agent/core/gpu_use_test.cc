#include "agent/core/gpu_use.h"

#include <doctest/doctest.h>

namespace dtrun::gpu_use_test {

using namespace dtrun::agent;

namespace {

const Gpu kSecond{.index = 0, .number = 1, .uuid = "GPU-1", .pci = "0000:20:00.0", .memory = 1000};

GpuReading reading_of(PhysicalGpu second) {
  second.pci = "0000:20:00.0";
  return {.gpus = {{.pci = "0000:10:00.0", .utilization = 0.1}, second}};
}

}  // namespace

TEST_CASE("a worker's GPU is found by its address, and what the driver does not tell is absent") {
  const auto use = use_of(kSecond, reading_of({.memory = 1000,
                                               .memory_used = 400,
                                               .utilization = 0.87,
                                               .temperature = 61,
                                               .power = 412.5,
                                               .throttled = {"heat"}}));
  REQUIRE(use);
  CHECK(*use == GpuUse{.number = 1,
                       .utilization = 0.87,
                       .memory_used = 400,
                       .memory_total = 1000,
                       .temperature = 61,
                       .power = 412.5,
                       .throttled = {"heat"}});
  const auto little = use_of(kSecond, reading_of({}));
  REQUIRE(little);
  CHECK(*little == GpuUse{.number = 1, .memory_total = 1000});
}

TEST_CASE("an instance has none of its GPU's numbers that are of all instances together") {
  Gpu instance = kSecond;
  instance.mig = true;
  instance.memory = 50;
  const auto use = use_of(
      instance, reading_of({.memory = 1000, .memory_used = 400, .utilization = 0.87, .temperature = 61}));
  REQUIRE(use);
  CHECK(*use == GpuUse{.number = 1, .memory_total = 50, .temperature = 61});
}

TEST_CASE("of a GPU that does not answer, or that is not there, nothing is told") {
  CHECK_FALSE(use_of(kSecond, reading_of({.lost = true})));
  CHECK_FALSE(use_of(kSecond, {}));
  CHECK_FALSE(use_of({.number = 1}, {.gpus = {PhysicalGpu{}}}));
}

}  // namespace dtrun::gpu_use_test
