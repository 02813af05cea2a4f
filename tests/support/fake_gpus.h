// A machine with made-up GPUs: the answers of the fake management library (fake_nvml/) to programs that are
// started with environment().
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/folder.h"

namespace dtrun::test {

class FakeGpus {
 public:
  // `json`: see fake_nvml.cc.
  explicit FakeGpus(const std::string& json) { tell(json); }

  // Atomically, so that no reader sees half of it.
  void tell(const std::string& json) {
    std::ofstream(folder_ / "new") << json;
    std::filesystem::rename(folder_ / "new", folder_ / "gpus.json");
  }
  // How often they were read.
  std::uintmax_t looks() const {
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(folder_ / "gpus.json.looks", error);
    return error ? 0 : size;
  }
  std::vector<std::string> environment() const {
    return {"DTRUN_CUDA_LIBRARY_PATH=" + std::string(DTRUN_FAKE_NVML_DIR),
            "DTRUN_FAKE_GPUS=" + (folder_ / "gpus.json").string()};
  }

 private:
  Folder folder_;
};

// `count` of one kind; each has `more` as well: ", \"used\": 5".
inline std::string alike(int count, const std::string& more = "") {
  std::string gpus;
  for (int i = 0; i < count; ++i)
    gpus += std::string(i > 0 ? "," : "") + R"({"name": "NVIDIA H200", "uuid": "GPU-)" + std::to_string(i) +
            R"(", "bus": )" + std::to_string(16 * (i + 1)) + more + "}";
  return R"({"gpus": [)" + gpus + "]}";
}

}  // namespace dtrun::test
