#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "worker/data/dataset_types.h"
#include "worker/data/images/idx_pair.h"
#include "worker/data/message.h"

namespace dtrun::worker {

namespace {

namespace fs = std::filesystem;

IdxForm form_of(const DataConfig& config) {
  return {.rank = {2, 4},
          .classes = config.classes,
          .normalisation = [config](int channels) { return normalisation_of(config, channels); },
          .way_out = "; check data.path and data.classes, or fetch the file again"};
}

enum class IdxContent { kImages, kLabels };

bool is_wanted(const std::string& name, Split split, IdxContent part) {
  const auto has = [&](const char* word) { return name.find(word) != std::string::npos; };
  const bool of_split = split == Split::kTrain ? has("train") : has("t10k") || has("test");
  return of_split && (has("-idx") || has(".idx")) && has("labels") == (part == IdxContent::kLabels) &&
         !name.starts_with('.');
}

Result<fs::path> find_part(const fs::path& directory, Split split, IdxContent part) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (is_wanted(name, split, part)) names.push_back(name);
  }
  if (error) {
    return bad_input(directory, "cannot be read: " + error.message() +
                                    "; set data.path to the directory with the IDX files");
  }
  std::ranges::sort(names);
  const std::string example =
      std::string(split == Split::kTrain ? "train" : "t10k") +
      (part == IdxContent::kImages ? "-images-idx3-ubyte.gz" : "-labels-idx1-ubyte.gz");
  const std::string what = part == IdxContent::kImages ? "images" : "labels";
  const std::string use = split == Split::kTrain ? " to train on" : " to test with";
  if (names.empty()) {
    return bad_input(directory, "has no IDX file of " + what + use + ", with a name like " + example +
                                    "; set data.path to the directory that has it");
  }
  const bool same = names.size() == 2 && names[1] == names[0] + ".gz";
  if (names.size() == 1 || same) return directory / names.back();
  return bad_input(directory, "has " + names[0] + " and " + names[1] + ": which has the " + what + use +
                                  "? Leave one of them in data.path");
}

Result<IdxPair> find_pair_of(const fs::path& directory, Split split) {
  ASSIGN_OR_RETURN(const auto images, find_part(directory, split, IdxContent::kImages));
  ASSIGN_OR_RETURN(const auto labels, find_part(directory, split, IdxContent::kLabels));
  return IdxPair{.images = images, .labels = labels};
}

}  // namespace

LoadedDataset load_idx(const DataConfig& config, Split split, NodeMemory& memory) {
  ASSIGN_OR_RETURN(const auto files, find_pair_of(config.path, split));
  return load_idx_pair(form_of(config), files, memory);
}

Result<DatasetFacts> check_idx(const DataConfig& config) {
  ASSIGN_OR_RETURN(const auto train, find_pair_of(config.path, Split::kTrain));
  ASSIGN_OR_RETURN(const auto test, find_pair_of(config.path, Split::kTest));
  return check_idx_pairs(form_of(config), train, test);
}

}  // namespace dtrun::worker
