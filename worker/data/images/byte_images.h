// Images of bytes with a label each, in memory.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "worker/data/dataset.h"
#include "worker/data/node_memory.h"

namespace dtrun::worker {

// From a byte to a value: (byte / 255 - mean) / std.
struct Normalisation {
  std::vector<float> mean{0}, std{1};  // of each channel, or one for all
  std::string text;                    // the formula, for people
};
// Of the config's mean and std. EX_CONFIG if it has numbers for other channels.
Result<Normalisation> normalisation_of(const DataConfig& config, int channels);

class ByteImages : public Dataset {
 public:
  // pixels: [samples, shape]; labels: of each sample a byte, or 4 of an int32.
  ByteImages(const SampleSpec& spec, const Normalisation& normalisation, HeldBytes pixels, HeldBytes labels);

  std::int64_t size() const override {
    return static_cast<std::int64_t>(pixels_.bytes.size() / spec_.shape.size());
  }
  SampleSpec spec() const override { return spec_; }
  std::string values() const override { return text_; }
  float black(int channel) const override { return table(channel)[0]; }
  std::uint64_t contents() const override;
  void fill(std::span<const std::uint32_t> samples, const SampleRows& rows) const override;

 private:
  std::int32_t label_of(std::uint32_t sample) const;
  using Table = std::array<float, 256>;  // by byte
  const Table& table(int channel) const { return tables_[tables_.size() == 1 ? 0 : channel]; }

  SampleSpec spec_;
  HeldBytes pixels_, labels_;  // floats would take four times the memory
  std::vector<Table> tables_;  // of each channel, or one for all
  std::string text_;
};

}  // namespace dtrun::worker
