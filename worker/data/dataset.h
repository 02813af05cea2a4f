// Data sets: samples in memory, handed out by index. Immutable after loading, so any thread may read.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "proto/core/status.h"
#include "worker/config/config.h"

namespace dtrun::worker {

enum class Split { kTrain, kTest };

struct SampleShape {
  int channels = 1, height = 0, width = 0;
  std::size_t size() const { return static_cast<std::size_t>(channels) * height * width; }
  bool operator==(const SampleShape&) const = default;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;  // samples
  virtual SampleShape shape() const = 0;
  virtual int classes() const = 0;
  // How a stored value becomes one of x, as a formula for people.
  virtual std::string values() const = 0;
  // x: [samples.size(), channels, height, width] fp32, normalised; labels: [samples.size()], 0-based.
  virtual void fill(std::span<const std::uint32_t> samples, float* x, std::int32_t* labels) const = 0;
};

// Throws WorkerError with EX_NOINPUT that names the file and what is wrong with it.
std::unique_ptr<Dataset> load_dataset(const DataConfig& config, Split split);

// Cheap look before anything starts: the files are there, readable, begin as they should and fit together.
// EX_NOINPUT.
Status check_dataset(const DataConfig& config);

}  // namespace dtrun::worker
