#include "agent/gpu/proc_gpus.h"

#include <doctest/doctest.h>

#include <fstream>

#include "tests/support/folder.h"

namespace dtrun::proc_gpus_test {

using namespace dtrun::agent;

namespace {

void put(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << text << "\n";
}

void put_gpu(const std::filesystem::path& root, const std::string& pci, int minor, const std::string& node) {
  put(root / "proc/driver/nvidia/gpus" / pci / "information",
      "Model: \t\t NVIDIA H200\nIRQ:   \t\t 42\nGPU UUID: \t GPU-" + std::to_string(minor) +
          "a-b\nBus Location: \t " + pci + "\nDevice Minor: \t " + std::to_string(minor));
  put(root / "sys/bus/pci/devices" / pci / "numa_node", node);
}

}  // namespace

TEST_CASE("GPUs in /proc are those with a device file, in the order of their addresses") {
  const test::Folder folder;
  const std::filesystem::path root = folder.path();
  CHECK(gpus_in_proc(root).failure == "no NVIDIA driver");
  put_gpu(root, "0000:41:00.0", 1, "1");
  put_gpu(root, "0000:01:00.0", 0, "0");
  put_gpu(root, "0000:81:00.0", 2, "-1");
  put_gpu(root, "0000:c1:00.0", 3, "1");  // not given to this container
  for (const char* file : {"dev/nvidia0", "dev/nvidia1", "dev/nvidia2"}) put(root / file, "");
  put(root / "proc/driver/nvidia/version",
      "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (x@y)");
  const GpuReading reading = gpus_in_proc(root);
  REQUIRE(reading.gpus.size() == 3);
  CHECK(reading.failure == "");
  CHECK(reading.driver == "580.65.06");
  CHECK(reading.gpus[0].pci == "0000:01:00.0");
  CHECK(reading.gpus[1].pci == "0000:41:00.0");
  CHECK(reading.gpus[1].uuid == "GPU-1a-b");
  CHECK(reading.gpus[1].name == "NVIDIA H200");
  CHECK(reading.gpus[1].numa_node == 1);
  CHECK(reading.gpus[2].numa_node == -1);
}

TEST_CASE("a driver without a GPU is no missing driver") {
  const test::Folder folder;
  put(folder.path() / "proc/driver/nvidia/version",
      "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue");
  CHECK(gpus_in_proc(folder.path()).failure == "");
  CHECK(sight_of(gpus_in_proc(folder.path()), nullptr).why_none == "the NVIDIA driver shows none");
}

}  // namespace dtrun::proc_gpus_test
