// Random changes of the images that a model is trained on, as torchvision's RandomCrop(size, padding) and
// RandomHorizontalFlip(p): functions of the seed, the epoch and the sample, never of rank, microbatch or
// time.
#pragma once

#include <memory>

#include "worker/data/dataset.h"

namespace dtrun::worker {

// A sample's change. The crop is of the size of the image, from the image with so many black pixels around
// it.
struct Change {
  int down = 0, right = 0;  // of the crop against the image: -padding to padding
  bool flipped = false;     // after the crop
  bool operator==(const Change&) const = default;
};
Change change_of(const DataConfig& config, const EpochKey& key, std::uint32_t sample);

// `from` and `to`: [channels, height, width], different memory; black: [channels].
void apply(const Change& change, const SampleShape& shape, const float* black, const float* from, float* to);

// The data set with the changes that the config asks for, or as it is if that asks for none. EX_CONFIG if its
// samples are no images.
std::unique_ptr<Dataset> augmented(const DataConfig& config, std::unique_ptr<Dataset> data);

}  // namespace dtrun::worker
