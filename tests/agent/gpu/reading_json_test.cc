#include "agent/gpu/reading_json.h"

#include <doctest/doctest.h>

namespace dtrun::reading_json_test {

using namespace dtrun::agent;

TEST_CASE("a reading is the same after it was a text") {
  PhysicalGpu gpu{.uuid = "GPU-1",
                  .name = "NVIDIA H200",
                  .pci = "0000:5e:00.0",
                  .memory = 1ull << 40,
                  .numa_node = 1,
                  .mig = true,
                  .lost = true,
                  .ecc_errors = 7,
                  .memory_used = 5,
                  .processes = {11, 12},
                  .throttled = {"heat"}};
  gpu.instances = {{.uuid = "MIG-1", .name = "1g", .memory = 9, .gpu_instance = 3, .compute_instance = 2}};
  const GpuReading reading{.gpus = {gpu, PhysicalGpu()}, .driver = "580.1", .cuda = 13000, .failure = "none"};
  const std::string text = to_json(reading);
  const auto again = reading_of(text);
  REQUIRE(again);
  CHECK(to_json(*again) == text);
  CHECK(again->cuda == 13000);
  CHECK(again->failure == "none");
  REQUIRE(again->gpus.size() == 2);
  CHECK(again->gpus[0].pci == "0000:5e:00.0");
  CHECK(again->gpus[0].memory == 1ull << 40);
  CHECK(again->gpus[0].numa_node == 1);
  CHECK(again->gpus[0].mig);
  CHECK(again->gpus[0].lost);
  CHECK(again->gpus[0].ecc_errors == 7);
  CHECK(again->gpus[0].processes == std::vector<int>{11, 12});
  CHECK(again->gpus[0].instances[0].gpu_instance == 3);
  CHECK(again->gpus[0].throttled == std::vector<std::string>{"heat"});
  CHECK_FALSE(again->gpus[1].ecc_errors);
}

TEST_CASE("what is no reading is none") {
  for (const char* text : {"", "{}", "[]", "{\"driver\": 1}", "no JSON",
                           R"({"driver": "", "cuda": 0, "failure": "", "gpus": [{}]})"})
    CHECK_FALSE_MESSAGE(reading_of(text).has_value(), text);
}

}  // namespace dtrun::reading_json_test
