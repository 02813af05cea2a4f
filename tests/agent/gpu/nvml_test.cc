// The driver's management library, a fake one: tests/support/fake_nvml.
#include "agent/gpu/nvml.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include "agent/gpu/read_gpus.h"
#include "tests/support/fake_gpus.h"

namespace dtrun::nvml_test {

using namespace dtrun::agent;
using test::FakeGpus;

namespace {

// The library reads the file's name from the environment of this process.
void use(const FakeGpus& fake) {
  const std::string entry = fake.environment()[1];
  setenv("DTRUN_FAKE_GPUS", entry.substr(entry.find('=') + 1).c_str(), 1);
}

const char kFolders[] = "/no/such/folder::" DTRUN_FAKE_NVML_DIR;

}  // namespace

TEST_CASE("all that is needed of a GPU is asked for") {
  const FakeGpus fake(R"({"driver": "580.1", "cuda": 13000, "gpus": [
    {"name": "NVIDIA H200", "uuid": "GPU-1", "bus": 94, "memory": 1000, "used": 400, "ecc": 3, "processes": [11, 12],
     "busy": 87, "celsius": 61, "milliwatts": 412500},
    {"name": "NVIDIA A100", "uuid": "GPU-2", "bus": 175, "instances": [
      {"uuid": "MIG-1", "name": "1g.5gb", "memory": 5, "gi": 7, "ci": 1}]}]})");
  use(fake);
  std::string why;
  const auto nvml = Nvml::load(kFolders, &why);
  REQUIRE_MESSAGE(nvml, why);
  const GpuReading reading = nvml->read();
  CHECK(reading.driver == "580.1");
  CHECK(reading.cuda == 13000);
  CHECK(reading.failure == "");
  REQUIRE(reading.gpus.size() == 2);
  const PhysicalGpu& gpu = reading.gpus[0];
  CHECK(gpu.uuid == "GPU-1");
  CHECK(gpu.name == "NVIDIA H200");
  CHECK(gpu.pci == "0000:5e:00.0");
  CHECK(gpu.memory == 1000);
  CHECK(gpu.memory_used == 400);
  CHECK(gpu.ecc_errors == 3);
  CHECK(gpu.processes == std::vector<int>{11, 12});
  CHECK(gpu.utilization == 0.87);
  CHECK(gpu.temperature == 61);
  CHECK(gpu.power == 412.5);
  CHECK_FALSE(reading.gpus[1].utilization);
  CHECK_FALSE(reading.gpus[1].temperature);
  CHECK_FALSE(reading.gpus[1].power);
  CHECK_FALSE(gpu.mig);
  CHECK_FALSE(gpu.lost);
  CHECK_FALSE(reading.gpus[1].ecc_errors);
  CHECK(reading.gpus[1].mig);
  REQUIRE(reading.gpus[1].instances.size() == 1);
  CHECK(reading.gpus[1].instances[0].uuid == "MIG-1");
  CHECK(reading.gpus[1].instances[0].gpu_instance == 7);
  CHECK(reading.gpus[1].instances[0].compute_instance == 1);
}

TEST_CASE("what slows a GPU down is asked for") {
  const FakeGpus fake(R"({"gpus": [
    {"name": "A", "uuid": "GPU-1", "throttle": 161}, {"name": "B", "uuid": "GPU-2", "throttle": 1}]})");
  use(fake);
  std::string why;
  const auto nvml = Nvml::load(kFolders, &why);
  REQUIRE_MESSAGE(nvml, why);
  const std::vector<PhysicalGpu> gpus = nvml->read().gpus;
  REQUIRE(gpus.size() == 2);
  CHECK(gpus[0].throttled == std::vector<std::string>{"heat", "power brake"});
  CHECK(gpus[1].throttled.empty());  // an idle GPU's clocks are low
}

TEST_CASE("each reading is a new one: processes come and go, a GPU is lost") {
  FakeGpus fake(test::alike(2));
  use(fake);
  std::string why;
  const auto nvml = Nvml::load(kFolders, &why);
  REQUIRE_MESSAGE(nvml, why);
  CHECK(nvml->read().gpus[1].processes.empty());
  fake.tell(test::alike(2, R"(, "lost": true)"));
  CHECK(nvml->read().gpus[1].lost);
  fake.tell(test::alike(2, R"(, "unreachable": true)"));
  CHECK(nvml->read().gpus[0].lost);
  std::string many = "1";
  for (int pid = 2; pid <= 300; ++pid) many += ", " + std::to_string(pid);
  fake.tell(test::alike(1, R"(, "processes": [)" + many + "]"));
  CHECK(nvml->read().gpus[0].processes.size() == 300);
  fake.tell(R"({"gpus": []})");
  CHECK(nvml->read().gpus.empty());
}

TEST_CASE("a library that is not there is no driver, one that does not start says why") {
  std::string why;
  CHECK_FALSE(Nvml::load("/no/such/folder", &why));
  CHECK(why == Nvml::kMissing);
  why.clear();
  const FakeGpus fake(R"({"init": 18})");
  use(fake);
  CHECK_FALSE(Nvml::load(kFolders, &why));
  CHECK(why == "the NVIDIA driver: Driver/library version mismatch");
  CHECK(GpuReader(kFolders).read().failure == why);
  CHECK(GpuReader(kFolders).read().gpus.empty());
  const FakeGpus unloaded(R"({"init": 9})");
  use(unloaded);
  CHECK(GpuReader(kFolders).read().failure == "the NVIDIA driver is not loaded");
}

}  // namespace dtrun::nvml_test
