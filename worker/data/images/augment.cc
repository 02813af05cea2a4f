#include "worker/data/images/augment.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "worker/base/error.h"
#include "worker/core/philox.h"

namespace dtrun::worker {
namespace {

enum Draw : std::uint64_t { kDown, kRight, kFlip };

class Augmented : public Dataset {
 public:
  Augmented(const DataConfig& config, std::unique_ptr<Dataset> data)
      : config_(config), data_(std::move(data)), shape_(data_->spec().shape) {
    for (int channel = 0; channel < shape_.channels; ++channel) black_.push_back(data_->black(channel));
  }

  std::int64_t size() const override { return data_->size(); }
  SampleSpec spec() const override { return data_->spec(); }
  std::string values() const override { return data_->values(); }
  std::uint64_t contents() const override { return data_->contents(); }
  std::string guessed() const override { return data_->guessed(); }
  void fill(std::span<const std::uint32_t> samples, const SampleRows& rows) const override {
    data_->fill(samples, rows);
  }
  void augment(std::span<const std::uint32_t> samples, const EpochKey& key,
               const SampleRows& rows) const override {
    std::vector<float> image(shape_.size());
    float* x = rows.values;
    for (const std::uint32_t sample : samples) {
      apply(change_of(config_, key, sample), shape_, black_.data(), x, image.data());
      x = std::ranges::copy(image, x).out;
    }
  }

 private:
  const DataConfig config_;
  const std::unique_ptr<Dataset> data_;
  const SampleShape shape_;
  std::vector<float> black_;  // [channels]
};

}  // namespace

Change change_of(const DataConfig& config, const EpochKey& key, std::uint32_t sample) {
  const RandomStream stream(key.seed, RandomUse::kAugment, static_cast<std::uint32_t>(key.epoch), sample);
  const int padding = config.random_crop_padding;
  const auto shift = [&](Draw draw) {
    const std::uint64_t choices = 2 * static_cast<std::uint64_t>(padding) + 1;
    return static_cast<int>(stream.bits(draw) * choices >> 32) - padding;
  };
  return {.down = shift(kDown),
          .right = shift(kRight),
          .flipped = static_cast<double>(stream.uniform(kFlip)) < config.random_horizontal_flip};
}

void apply(const Change& change, const SampleShape& shape, const float* black, const float* from, float* to) {
  const int first = std::clamp(-change.right, 0, shape.width);  // columns [first, last) come from the image
  const int last = std::clamp(shape.width - change.right, first, shape.width);
  for (int channel = 0; channel < shape.channels; ++channel)
    for (int y = 0; y < shape.height; ++y, to += shape.width) {
      const int source = y + change.down;
      std::fill_n(to, shape.width, black[channel]);
      if (source >= 0 && source < shape.height) {
        const float* const row =
            from + (static_cast<std::size_t>(channel) * shape.height + source) * shape.width;
        std::copy(row + first + change.right, row + last + change.right, to + first);
      }
      if (change.flipped) std::reverse(to, to + shape.width);
    }
}

std::unique_ptr<Dataset> augmented(const DataConfig& config, std::unique_ptr<Dataset> data) {
  if (config.random_crop_padding == 0 && config.random_horizontal_flip == 0) return data;
  const SampleShape shape = data->spec().shape;
  if (shape.height == 1 || shape.width == 1)
    throw WorkerError(
        kExitConfig,
        "/data/random_crop_padding and /data/random_horizontal_flip are for images, and samples are " +
            shape_text(shape) + "; leave them out");
  return std::make_unique<Augmented>(config, std::move(data));
}

}  // namespace dtrun::worker
