#include "worker/data/images/byte_images.h"

#include <utility>

namespace dtrun::worker {

ByteImages::ByteImages(const SampleSpec& spec, const Normalisation& normalisation, HeldBytes pixels,
                       HeldBytes labels)
    : spec_(spec),
      pixels_(std::move(pixels)),
      labels_(std::move(labels)),
      tables_(normalisation.mean.size()),
      text_(normalisation.text) {
  for (std::size_t i = 0; i < tables_.size(); ++i)
    for (std::size_t byte = 0; byte < tables_[i].size(); ++byte)
      tables_[i][byte] = (static_cast<float>(byte) / 255.0f - normalisation.mean[i]) / normalisation.std[i];
}

namespace {

void prefetch(const std::uint8_t* bytes, std::size_t count) {
  constexpr std::size_t kLine = 64;
  for (std::size_t i = 0; i < count; i += kLine) __builtin_prefetch(bytes + i);
}

}  // namespace

void ByteImages::fill(std::span<const std::uint32_t> samples, const SampleRows& rows) const {
  const std::size_t plane = static_cast<std::size_t>(spec_.shape.height) * spec_.shape.width;
  float* x = rows.values;
  std::int32_t* labels = rows.targets;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::uint32_t sample = samples[i];
    const std::uint8_t* pixel = pixels_.bytes.data() + sample * spec_.shape.size();
    // Samples lie anywhere: the next one comes from memory meanwhile.
    if (i + 1 < samples.size())
      prefetch(pixels_.bytes.data() + samples[i + 1] * spec_.shape.size(), spec_.shape.size());
    for (int channel = 0; channel < spec_.shape.channels; ++channel) {
      const Table& values = table(channel);
      for (std::size_t at = 0; at < plane; ++at) x[at] = values[pixel[at]];
      x += plane, pixel += plane;
    }
    *labels++ = labels_.bytes[sample];
  }
}

}  // namespace dtrun::worker
