// Data sets: samples, handed out by index. Immutable after loading, so any thread may read.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "proto/core/status.h"
#include "worker/config/config.h"

namespace dtrun::worker {

class NodeMemory;

enum class Split { kTrain, kTest };

struct SampleShape {
  int channels = 1, height = 0, width = 0;
  std::size_t size() const { return static_cast<std::size_t>(channels) * height * width; }
  bool operator==(const SampleShape&) const = default;
};

// The form of every sample of a data set.
struct SampleSpec {
  enum class Input : std::uint8_t { kValues, kTokens };
  Input input = Input::kValues;
  SampleShape shape;  // of the values; {1, 1, LENGTH} for tokens
  int targets = 1;    // per sample
  int classes = 0;    // targets are 0..classes-1, and so are tokens
  bool operator==(const SampleSpec&) const = default;
};

// The memory that samples are written to, a row each: either values or tokens, as the spec says.
struct SampleRows {
  float* values = nullptr;          // [samples, channels, height, width], normalised
  std::int32_t* tokens = nullptr;   // [samples, length]
  std::int32_t* targets = nullptr;  // [samples, targets]
};

// Determines the random changes of an epoch's samples.
struct EpochKey {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;  // samples
  virtual SampleSpec spec() const = 0;
  // The formula from a stored number to a value, for people.
  virtual std::string values() const = 0;
  virtual void fill(std::span<const std::uint32_t> samples, const SampleRows& rows) const = 0;
  // Changes the filled rows as this epoch of training has them (worker/data/images/augment.h); most sets have
  // none.
  virtual void augment(std::span<const std::uint32_t>, const EpochKey&, const SampleRows&) const {}
  // The value of a pixel of which nothing is known, around an image.
  virtual float black(int /*channel*/) const { return 0; }
  // A hash of all samples; of files that are read in place, of their sizes and hash_of_some(). 0: the config
  // says it all.
  virtual std::uint64_t contents() const { return 0; }
  // What was guessed of the files' form, for people; mostly empty.
  virtual std::string guessed() const { return ""; }
  // A reason to mistrust evaluations with this set; mostly empty.
  virtual std::string doubts() const { return ""; }
};

// A hash of up to 256 samples, evenly spread: more would take long from a disk that is far away.
std::uint64_t hash_of_some(const Dataset& data);

// "1x28x28": channels, height, width.
std::string shape_text(const SampleShape& shape);

// Throws WorkerError with EX_NOINPUT that names the file and its fault.
std::unique_ptr<Dataset> load_dataset(const DataConfig& config, Split split, NodeMemory& memory);
// In memory of this process's own.
std::unique_ptr<Dataset> load_dataset(const DataConfig& config, Split split);

// The facts about a data set that are known before it is loaded.
struct DatasetFacts {
  SampleSpec spec;
  std::int64_t train = 0, test = 0;  // samples; estimates for a table
  std::uint64_t bytes = 0;  // that both splits hold in a node's memory; files read in place take none
};

// Cheap check before anything starts: the files exist, are readable, begin as they should and fit together.
// EX_NOINPUT.
Result<DatasetFacts> check_dataset(const DataConfig& config);

}  // namespace dtrun::worker
