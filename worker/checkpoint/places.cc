#include "worker/checkpoint/places.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "worker/base/error.h"

namespace dtrun::worker {

namespace {

namespace fs = std::filesystem;

constexpr char kStepPrefix[] = "step-";
constexpr std::size_t kMostDigits = 15;

// The step of "step-00000500", or nothing for another name.
std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  const std::string digits = name.substr(sizeof kStepPrefix - 1);
  const bool number = !digits.empty() && digits.size() <= kMostDigits &&
                      std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!number) return std::nullopt;
  const std::int64_t step = std::stoll(digits);
  if (step_name(step) != name) return std::nullopt;
  return step;
}

}  // namespace

fs::path checkpoints_directory(const fs::path& output_dir) { return output_dir / "checkpoints"; }

std::string step_name(std::int64_t step) {
  char name[40];
  std::snprintf(name, sizeof name, "%s%08lld", kStepPrefix, static_cast<long long>(step));
  return name;
}

std::map<std::int64_t, fs::path> list_checkpoints(const fs::path& output_dir) {
  std::map<std::int64_t, fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(checkpoints_directory(output_dir), error), end; !error && entry != end;
       entry.increment(error)) {
    const auto step = step_of(entry->path().filename().string());
    if (step) found[*step] = entry->path();
  }
  return found;
}

fs::path run_directory_of(const fs::path& model) {
  std::error_code ignored;
  const fs::path beside = model.parent_path();
  return fs::exists(beside / "config.json", ignored) ? beside : beside / "../..";
}

fs::path model_file_of(const fs::path& run) {
  std::error_code ignored;
  if (fs::exists(run / kModelFile, ignored)) return run / kModelFile;
  const auto checkpoints = list_checkpoints(run);
  if (!checkpoints.empty()) return checkpoints.rbegin()->second / kModelFile;
  throw WorkerError(kExitNoInput, run.string() + " holds no model: name the output_dir of a job, or one of " +
                                      "its checkpoints");
}

}  // namespace dtrun::worker
