#include <algorithm>
#include <string>

#include "worker/core/philox.h"
#include "worker/data/dataset_types.h"
#include "worker/data/windows.h"

namespace dtrun::worker {
namespace {

// The purpose of a stream of random numbers, beside the sample or class that it belongs to.
enum StreamNumber : std::uint32_t { kPattern = 0, kNoise = 1, kLabel = 2 };

SampleSpec spec_of_samples(const DataConfig& config) {
  return {.shape = {.channels = config.shape[0], .height = config.shape[1], .width = config.shape[2]},
          .classes = config.classes};
}

class Synthetic : public Dataset {
 public:
  // Samples `first` to first + size - 1 of those that the seed makes.
  Synthetic(const DataConfig& config, std::uint64_t first, std::uint64_t size)
      : spec_(spec_of_samples(config)), seed_(config.seed), first_(first), size_(size) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(size_); }
  SampleSpec spec() const override { return spec_; }
  std::string values() const override { return "(pattern + noise) / 64"; }

  void fill(std::span<const std::uint32_t> samples, const SampleRows& rows) const override {
    float* values = rows.values;
    std::int32_t* labels = rows.targets;
    for (const std::uint32_t sample : samples) {
      const auto number = static_cast<std::uint32_t>(first_ + sample);
      const auto label = static_cast<std::uint32_t>(
          std::uint64_t{stream(number, kLabel).bits(0)} * static_cast<std::uint32_t>(spec_.classes) >> 32);
      fill_one(stream(label, kPattern), stream(number, kNoise), values);
      values += spec_.shape.size();
      *labels++ = static_cast<std::int32_t>(label);
    }
  }

 private:
  RandomStream stream(std::uint32_t number, StreamNumber use) const {
    return RandomStream(seed_, RandomUse::kData, number, use);
  }

  // Each number of the streams gives four values, computed with integers so that every machine makes the
  // same. The noise has twice the pattern's spread, and a standard deviation of 1.15.
  void fill_one(const RandomStream& pattern, const RandomStream& noise, float* values) const {
    const std::size_t size = spec_.shape.size();
    for (std::size_t i = 0; i < size; i += 4) {
      const std::uint32_t pattern_bytes = pattern.bits(i / 4), noise_bytes = noise.bits(i / 4);
      for (std::size_t k = 0; k < std::min<std::size_t>(4, size - i); ++k) {
        const auto byte_of = [&](std::uint32_t bytes) {
          return static_cast<int>(bytes >> 8 * k & 255) - 128;
        };
        const int sum = byte_of(pattern_bytes) / 2 + byte_of(noise_bytes);
        values[i + k] = static_cast<float>(sum) / 64;
      }
    }
  }

  SampleSpec spec_;
  std::uint64_t seed_, first_, size_;
};

}  // namespace

LoadedDataset load_synthetic(const DataConfig& config, Split split, NodeMemory&) {
  const auto all = static_cast<std::uint64_t>(config.samples);
  const std::uint64_t test = test_share(all, config.test_fraction), train = all - test;
  return std::unique_ptr<Dataset>(split == Split::kTrain ? std::make_unique<Synthetic>(config, 0, train)
                                                         : std::make_unique<Synthetic>(config, train, test));
}

Result<DatasetFacts> check_synthetic(const DataConfig& config) {
  const auto all = static_cast<std::uint64_t>(config.samples);
  const std::uint64_t test = test_share(all, config.test_fraction);
  return DatasetFacts{.spec = spec_of_samples(config),
                      .train = static_cast<std::int64_t>(all - test),
                      .test = static_cast<std::int64_t>(test)};
}

}  // namespace dtrun::worker
