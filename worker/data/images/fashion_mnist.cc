#include <cstdlib>
#include <filesystem>
#include <string>

#include "worker/data/dataset_types.h"
#include "worker/data/images/idx_pair.h"
#include "worker/data/message.h"

namespace dtrun::worker {

namespace {

namespace fs = std::filesystem;

// Mean and deviation are those of the training images' pixels, scaled to 0..1.
IdxForm fashion_form() {
  return {.rank = 3,
          .classes = 10,
          .normalisation =
              [](int) {
                return Normalisation{
                    .mean = {0.2860f}, .std = {0.3530f}, .text = "(byte / 255 - 0.2860) / 0.3530"};
              },
          .way_out = "; reinstall the package dataset-fashion-mnist or fetch the file again"};
}

IdxPair names_of(Split split) {
  return split == Split::kTrain
             ? IdxPair{.images = "train-images-idx3-ubyte", .labels = "train-labels-idx1-ubyte"}
             : IdxPair{.images = "t10k-images-idx3-ubyte", .labels = "t10k-labels-idx1-ubyte"};
}

// NAME.gz if it exists, else NAME; some archives bring "images.idx3" for "images-idx3".
Result<fs::path> find_file(const fs::path& directory, const std::string& name) {
  std::error_code error;
  if (!fs::exists(directory, error)) {
    const bool in_pod = std::getenv("KUBERNETES_SERVICE_HOST") != nullptr;
    const char* const way_out = in_pod ? ".gz: of the image, or of a claim (--volume CLAIM=/PATH:ro)"
                                       : ".gz, or install the package dataset-fashion-mnist";
    return bad_input(directory,
                     "there is no such directory; set data.path to the directory with " + name + way_out);
  }
  std::string dotted = name;
  dotted[name.rfind("-idx")] = '.';
  for (const std::string& file : {name + ".gz", name, dotted + ".gz", dotted}) {
    if (fs::exists(directory / file, error)) return directory / file;
  }
  return bad_input(directory, "has neither " + name + ".gz nor " + name +
                                  "; set data.path to the data set's directory, or reinstall the package "
                                  "dataset-fashion-mnist");
}

Result<IdxPair> find_pair(const fs::path& directory, Split split) {
  const IdxPair names = names_of(split);
  ASSIGN_OR_RETURN(const auto images, find_file(directory, names.images));
  ASSIGN_OR_RETURN(const auto labels, find_file(directory, names.labels));
  return IdxPair{.images = images, .labels = labels};
}

}  // namespace

LoadedDataset load_fashion_mnist(const DataConfig& config, Split split, NodeMemory& memory) {
  ASSIGN_OR_RETURN(const auto files, find_pair(config.path, split));
  return load_idx_pair(fashion_form(), files, memory);
}

Result<DatasetFacts> check_fashion_mnist(const DataConfig& config) {
  ASSIGN_OR_RETURN(const auto train, find_pair(config.path, Split::kTrain));
  ASSIGN_OR_RETURN(const auto test, find_pair(config.path, Split::kTest));
  return check_idx_pairs(fashion_form(), train, test);
}

}  // namespace dtrun::worker
