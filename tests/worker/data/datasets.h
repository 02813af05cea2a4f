// The common parts of the data sets' tests: loading, samples as vectors, faults as texts.
#pragma once

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "worker/base/error.h"
#include "worker/data/dataset.h"

namespace dtrun::worker {

struct Samples {
  std::vector<float> values;
  std::vector<std::int32_t> tokens, targets;
};

inline Samples samples_of(const Dataset& data, const std::vector<std::uint32_t>& numbers) {
  const SampleSpec spec = data.spec();
  const bool tokens = spec.input == SampleSpec::Input::kTokens;
  Samples got;
  (tokens ? got.tokens.resize(numbers.size() * spec.shape.size(), -1)
          : got.values.resize(numbers.size() * spec.shape.size(), -1));
  got.targets.resize(numbers.size() * static_cast<std::size_t>(spec.targets), -1);
  data.fill(numbers,
            {.values = got.values.data(), .tokens = got.tokens.data(), .targets = got.targets.data()});
  return got;
}

// The message that `work` throws, always a fault of the input.
template <typename Work>
std::string input_fault(const Work& work) {
  try {
    work();
  } catch (const WorkerError& error) {
    CHECK(error.exit_code() == kExitNoInput);
    return error.what();
  }
  return "accepted";
}

inline std::string load_fault_of(const DataConfig& config, Split split = Split::kTrain) {
  return input_fault([&] { load_dataset(config, split); });
}

inline std::string check_fault_of(const DataConfig& config) {
  const Status status = check_dataset(config).status();
  if (status.ok()) return "accepted";
  CHECK(status.exit_code() == kExitNoInput);
  return status.message();
}

// A fault that must be found both before the job starts and by a worker that loads.
inline std::string fault_of_both(const DataConfig& config) {
  const std::string checked = check_fault_of(config);
  CHECK(load_fault_of(config) == checked);
  return checked;
}

// A file that nobody may read, also if the tests run as root: they are somebody else while this lives.
class Unreadable {
 public:
  explicit Unreadable(const std::filesystem::path& path) : path_(path) {
    std::filesystem::permissions(path, std::filesystem::perms::none);
    if (was_root_) REQUIRE(seteuid(65534) == 0);
  }
  ~Unreadable() {
    if (was_root_ && seteuid(0) != 0) std::abort();
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all);
  }
  Unreadable(const Unreadable&) = delete;

 private:
  const std::filesystem::path path_;
  const bool was_root_ = geteuid() == 0;
};

}  // namespace dtrun::worker
