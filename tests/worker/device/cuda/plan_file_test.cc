// cuDNN's plans in a file, and no file where there are none.
#include "worker/device/cuda/plan_file.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "tests/support/folder.h"
#include "tests/worker/model/programs.h"
#include "worker/device/cuda_device.h"

namespace dtrun::worker::plan_file_test {
namespace {

TEST_CASE("a file of plans is what was kept last, and nothing lies beside it") {
  const test::Folder folder;
  const std::filesystem::path file = folder.path() / "new" / "plans.json";
  CHECK(cuda::read_plans(file).empty());
  cuda::keep_plans(file, "first\n");
  cuda::keep_plans(file, std::string("se\0cond", 7));
  CHECK(cuda::read_plans(file) == std::string("se\0cond", 7));
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(file.parent_path()))
    files += static_cast<int>(entry.exists());
  CHECK(files == 1);
}

TEST_CASE("where no plans can be kept, nothing happens") {
  const test::Folder folder;
  const std::filesystem::path file = folder.path() / "file";
  cuda::keep_plans(file, "not a folder");
  cuda::keep_plans(file / "plans.json", "text");
  CHECK(cuda::read_plans(file / "plans.json").empty());
  cuda::keep_plans({}, "text");
  CHECK(cuda::read_plans({}).empty());
  CHECK(cuda::read_plans(folder.path()).empty());
}

TEST_CASE("a lane without cuDNN makes no file of plans, and reads none") {
  const test::Folder folder;
  const std::filesystem::path file = folder.path() / "plans.json";
  Program program = gpt2_program(tiny_gpt2(), 7, 13);
  program.bf16 = true;
  const auto device = make_cuda_device(0, file);
  CHECK(device->fingerprint().ends_with(", cuBLASLt 13.1.0"));
  const auto lane = device->make_lane(program, 2);
  CHECK(device->fingerprint().ends_with(", cuBLASLt 13.1.0, own kernels for attention"));
  CHECK(!std::filesystem::exists(file));
}

}  // namespace
}  // namespace dtrun::worker::plan_file_test
