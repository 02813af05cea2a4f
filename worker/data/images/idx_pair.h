// Samples and their labels in two IDX files, the common form of the data sets of the MNIST family.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "proto/core/status.h"
#include "worker/data/dataset.h"
#include "worker/data/images/byte_images.h"
#include "worker/data/images/idx.h"

namespace dtrun::worker {

struct IdxPair {
  std::filesystem::path images, labels;  // as gzip or not
};

// The properties that both splits share.
struct IdxForm {
  IdxRank rank;     // images: [n, height, width]; also [n, values] or [n, channels, height, width]
  int classes = 0;  // labels are 0..classes-1
  // Of the images' bytes, for so many channels.
  std::function<Result<Normalisation>(int channels)> normalisation;
  std::string way_out;  // ends the message about a bad file
};

// Failures have EX_NOINPUT and name the file.
Result<std::unique_ptr<Dataset>> load_idx_pair(const IdxForm& form, const IdxPair& files, NodeMemory& memory);
Result<DatasetFacts> check_idx_pairs(const IdxForm& form, const IdxPair& train, const IdxPair& test);

}  // namespace dtrun::worker
