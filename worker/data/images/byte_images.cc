#include "worker/data/images/byte_images.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "worker/base/bits_hash.h"

namespace dtrun::worker {
namespace {

// The shortest text that is this number.
std::string shortest(double number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

std::string text_of(const std::vector<double>& numbers) {
  if (numbers.size() == 1) return shortest(numbers[0]);
  std::string text;
  for (const double number : numbers) text += (text.empty() ? "[" : ", ") + shortest(number);
  return text + "]";
}

void prefetch(const std::uint8_t* bytes, std::size_t count) {
  constexpr std::size_t kLine = 64;
  for (std::size_t i = 0; i < count; i += kLine) __builtin_prefetch(bytes + i);
}

}  // namespace

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

Result<Normalisation> normalisation_of(const DataConfig& config, int channels) {
  Normalisation made{.mean = {config.mean.begin(), config.mean.end()},
                     .std = {config.std.begin(), config.std.end()},
                     .text = "(byte / 255 - " + text_of(config.mean) + ") / " + text_of(config.std)};
  const std::size_t most = std::max(made.mean.size(), made.std.size());
  for (auto* const numbers : {&made.mean, &made.std}) {
    if (numbers->size() == 1) numbers->resize(most, numbers->front());
    if (numbers->size() == most && (most == 1 || most == static_cast<std::size_t>(channels))) continue;
    return Status(kExitConfig,
                  "/data/mean and /data/std are one number, or one for each channel, of which "
                  "there " +
                      std::string(channels == 1 ? "is 1" : "are " + std::to_string(channels)));
  }
  return made;
}

std::int32_t ByteImages::label_of(std::uint32_t sample) const {
  if (labels_.bytes.size() == static_cast<std::size_t>(size())) return labels_.bytes[sample];
  return reinterpret_cast<const std::int32_t*>(labels_.bytes.data())[sample];
}

std::uint64_t ByteImages::contents() const { return joint_hash({pixels_.hash, labels_.hash}); }

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
    *labels++ = label_of(sample);
  }
}

}  // namespace dtrun::worker
