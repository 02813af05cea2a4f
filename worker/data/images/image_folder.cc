// Images in a folder for each class, as torchvision's ImageFolder has them, decoded once on a node and kept
// as bytes of one size.
#include <algorithm>
#include <atomic>
#include <cctype>
#include <filesystem>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/core/text.h"
#include "worker/base/pulse.h"
#include "worker/config/strict_json.h"
#include "worker/core/sampler.h"
#include "worker/data/dataset_types.h"
#include "worker/data/images/byte_images.h"
#include "worker/data/images/decode.h"
#include "worker/data/input_file.h"
#include "worker/data/message.h"
#include "worker/data/node_memory.h"
#include "worker/data/text_files.h"
#include "worker/data/windows.h"

namespace dtrun::worker {
namespace {

namespace fs = std::filesystem;

struct ImageFile {
  fs::path path;
  std::int32_t label = 0;
};

// The images of both splits, by class and name, so in the same order on every machine.
struct ImageList {
  std::vector<std::string> classes;  // by number
  std::vector<ImageFile> train, test;
  std::size_t others = 0;  // files that are no images
  std::string splits;      // in words
};

std::string suffix_of(const fs::path& path) {
  std::string suffix = path.extension().string();
  std::ranges::transform(suffix, suffix.begin(), [](unsigned char c) { return std::tolower(c); });
  return suffix;
}

// Links to folders count.
Result<std::vector<std::string>> folders_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unknown;
    const std::string name = entry->path().filename().string();
    if (!name.starts_with('.') && entry->is_directory(unknown)) names.push_back(name);
  }
  if (error)
    return bad_input(directory, "cannot be read: " + error.message() +
                                    "; set data.path to the folder with train/CLASS/*.png or *.jpg");
  std::ranges::sort(names);
  return names;
}

// Adds the images of a class; another kind of image is refused, as it would be left out without a word.
Status add_images(const fs::path& directory, std::int32_t label, std::vector<ImageFile>* images,
                  std::size_t* others) {
  static const std::set<std::string> kTaken = {".png", ".jpg", ".jpeg"};
  static const std::set<std::string> kRefused = {".avif", ".bmp", ".gif", ".heic", ".jfif", ".jp2",
                                                 ".jxl",  ".pgm", ".ppm", ".tiff", ".tif",  ".webp"};
  ASSIGN_OR_RETURN(const auto paths, text_files(directory, "*"));
  for (const fs::path& path : paths) {
    const std::string suffix = suffix_of(path);
    if (kRefused.contains(suffix))
      return bad_input(path, "is neither PNG nor JPEG; convert it, or take it out of data.path");
    if (kTaken.contains(suffix))
      images->push_back({.path = path, .label = label});
    else
      ++*others;
  }
  return {};
}

// Moves those that the seed draws from train to test; both stay in their order.
void split_off(const DataConfig& config, ImageList* list) {
  const std::vector<ImageFile> all = std::exchange(list->train, {});
  const auto size = static_cast<std::int64_t>(all.size());
  const auto test = static_cast<std::int64_t>(test_share(all.size(), config.test_fraction));
  const EpochOrder order(config.seed, 0, size);
  std::vector<bool> drawn(all.size());
  for (std::int64_t i = 0; i < test; ++i) drawn[order.at(i)] = true;
  for (std::size_t i = 0; i < all.size(); ++i) (drawn[i] ? list->test : list->train).push_back(all[i]);
  list->splits = "data.seed draws " + with_thousands(list->test.size()) + " of them for the test";
}

// The folder of the classes to train on, and that of those to test with; empty: there is none.
struct SplitFolders {
  fs::path train, test;
};

Result<SplitFolders> split_folders(const DataConfig& config) {
  const fs::path root = config.path;
  ASSIGN_OR_RETURN(const auto folders, folders_in(root));
  const auto has = [&](const std::string& name) { return std::ranges::binary_search(folders, name); };
  // A class may be called "train", too.
  if (!has("train")) return SplitFolders{.train = root, .test = {}};
  ASSIGN_OR_RETURN(const auto within, folders_in(root / "train"));
  if (within.empty()) return SplitFolders{.train = root, .test = {}};
  for (const char* name : {"val", "valid", "validation", "test"})
    if (has(name)) return SplitFolders{.train = root / "train", .test = root / name};
  return SplitFolders{.train = root / "train", .test = {}};
}

Result<ImageList> list_images(const DataConfig& config) {
  ImageList list;
  ASSIGN_OR_RETURN(const auto folders, split_folders(config));
  ASSIGN_OR_RETURN(list.classes, folders_in(folders.train));
  if (list.classes.size() < 2)
    return bad_input(folders.train, "has " +
                                        counted(static_cast<std::int64_t>(list.classes.size()), "folder") +
                                        ", but each class needs one, and there are at least two");
  for (std::size_t k = 0; k < list.classes.size(); ++k) {
    const std::size_t before = list.train.size();
    const fs::path directory = folders.train / list.classes[k];
    RETURN_IF_ERROR(add_images(directory, static_cast<std::int32_t>(k), &list.train, &list.others));
    if (list.train.size() == before)
      return bad_input(directory, "has no images (.png, .jpg, .jpeg); put some in, or take the folder away");
  }
  if (folders.test.empty()) {
    split_off(config, &list);
    return list;
  }
  ASSIGN_OR_RETURN(const auto of_test, folders_in(folders.test));
  for (const std::string& name : of_test) {
    const auto found = std::ranges::lower_bound(list.classes, name);
    if (found == list.classes.end() || *found != name)
      return bad_input(folders.test / name, "is no class of " + folders.train.string());
    const auto label = static_cast<std::int32_t>(found - list.classes.begin());
    RETURN_IF_ERROR(add_images(folders.test / name, label, &list.test, &list.others));
  }
  if (list.test.empty()) return bad_input(folders.test, "has no images (.png, .jpg, .jpeg) to test with");
  list.splits = "the test is " + folders.test.filename().string() + "/";
  return list;
}

SampleSpec spec_of(const DataConfig& config, const ImageList& list) {
  return {
      .shape = {.channels = config.channels, .height = config.image_size[0], .width = config.image_size[1]},
      .classes = static_cast<int>(list.classes.size())};
}

Result<std::vector<std::uint8_t>> bytes_in(const fs::path& path, std::uint64_t most = UINT64_MAX) {
  ASSIGN_OR_RETURN(const auto file, InputFile::open(path));
  std::vector<std::uint8_t> bytes(std::min(file.size(), most));
  RETURN_IF_ERROR(file.read(0, bytes));
  return bytes;
}

// to: [channels, height, width]. On any thread, which no exception may leave.
Status decode_to(const fs::path& path, const DataConfig& config, std::uint8_t* to) try {
  const int height = config.image_size[0], width = config.image_size[1];
  ASSIGN_OR_RETURN(const auto bytes, bytes_in(path));
  const auto image = decode_image(bytes, config.channels);
  if (!image.ok()) return bad_input(path, image.status().message());
  const ResizedPart whole =
      resized_part(image.value().height, image.value().width, config.resize, height, width);
  const PixelImage part = resample(image.value(), whole, height, width);
  const std::size_t plane = static_cast<std::size_t>(height) * static_cast<std::size_t>(width);
  const auto channels = static_cast<std::size_t>(config.channels);
  for (std::size_t c = 0; c < channels; ++c)
    for (std::size_t at = 0; at < plane; ++at) *to++ = part.pixels[channels * at + c];
  return {};
} catch (const std::bad_alloc&) {
  return Status(kExitOsError, path.string() + ": there is not enough memory to decode it");
}

// The images that cannot be read: all are told at once, as a folder of millions takes hours.
class BrokenImages {
 public:
  void add(std::size_t number, const Status& status) {
    const std::lock_guard lock(mutex_);
    faults_.emplace(number, status);
  }
  Status status() const {
    if (faults_.empty()) return {};
    constexpr std::size_t kTold = 5;
    std::string text;
    std::size_t told = 0;
    for (const auto& [number, fault] : faults_)
      if (told++ < kTold) text += (text.empty() ? "" : "; ") + fault.message();
    if (faults_.size() > kTold) text += "; and " + with_thousands(faults_.size() - kTold) + " more";
    return Status(faults_.begin()->second.exit_code(),
                  text + ". Fetch such files again, or take them out of data.path");
  }

 private:
  std::mutex mutex_;
  std::map<std::size_t, Status> faults_;  // by the image's number
};

// Labels, then pixels. A sample's place is its number's, whichever thread decodes it.
Status decode_all(const std::vector<ImageFile>& images, const DataConfig& config, std::size_t sample_bytes,
                  const Room& room) {
  const std::size_t label_bytes = images.size() * sizeof(std::int32_t);
  std::uint8_t* const memory = room(label_bytes + images.size() * sample_bytes).data();
  auto* const labels = reinterpret_cast<std::int32_t*>(memory);
  BrokenImages broken;
  std::atomic<std::size_t> next{0};
  const auto decode_some = [&] {
    for (std::size_t i = next++; i < images.size(); i = next++) {
      labels[i] = images[i].label;
      if (const Status status = decode_to(images[i].path, config, memory + label_bytes + i * sample_bytes);
          !status.ok())
        broken.add(i, status);
      Pulse::beat();
    }
  };
  {
    const std::size_t most = std::max(1U, std::thread::hardware_concurrency());
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < std::min(most, images.size()); ++i) threads.emplace_back(decode_some);
    decode_some();
  }
  return broken.status();
}

class FolderImages final : public ByteImages {
 public:
  FolderImages(const SampleSpec& spec, const Normalisation& normalisation, const HeldBytes& pixels,
               const HeldBytes& labels, std::string guessed)
      : ByteImages(spec, normalisation, pixels, labels), guessed_(std::move(guessed)) {}
  std::string guessed() const override { return guessed_; }

 private:
  const std::string guessed_;
};

std::string in_words(const ImageList& list) {
  return with_thousands(list.classes.size()) + " classes from 0 \"" + printable(list.classes.front()) +
         "\" to " + std::to_string(list.classes.size() - 1) + " \"" + printable(list.classes.back()) +
         "\"; " + list.splits +
         (list.others > 0
              ? "; left out: " + counted(static_cast<std::int64_t>(list.others), "file") + " of other kinds"
              : "");
}

}  // namespace

LoadedDataset load_image_folder(const DataConfig& config, Split split, NodeMemory& memory) {
  ASSIGN_OR_RETURN(const auto list, list_images(config));
  const std::vector<ImageFile>& images = split == Split::kTrain ? list.train : list.test;
  ASSIGN_OR_RETURN(const auto normalisation, normalisation_of(config, config.channels));
  const SampleSpec spec = spec_of(config, list);
  std::vector<fs::path> paths;
  for (const ImageFile& image : images) paths.push_back(image.path);
  // A folder that is renamed leaves the stamps of its files as they are, and gives them another label.
  std::string what = split == Split::kTrain ? "images to train on" : "images to test with";
  for (const ImageFile& image : images) what += "/" + std::to_string(image.label);
  ASSIGN_OR_RETURN(const auto held, memory.bytes_of(what, paths, [&](const Room& room) {
    return decode_all(images, config, spec.shape.size(), room);
  }));
  const std::size_t labels = images.size() * sizeof(std::int32_t);
  return std::unique_ptr<Dataset>(std::make_unique<FolderImages>(
      spec, normalisation, HeldBytes{held.bytes.subspan(labels), held.memory, held.hash},
      HeldBytes{held.bytes.first(labels), held.memory, held.hash}, in_words(list)));
}

Result<DatasetFacts> check_image_folder(const DataConfig& config) {
  ASSIGN_OR_RETURN(const auto list, list_images(config));
  if (const auto fits = normalisation_of(config, config.channels); !fits.ok()) return fits.status();
  for (const std::vector<ImageFile>* images : {&list.train, &list.test})
    for (std::size_t i = 0; i < images->size(); ++i) {
      const ImageFile& one = (*images)[i];
      if (i > 0 && (*images)[i - 1].label == one.label) continue;
      ASSIGN_OR_RETURN(const auto beginning, bytes_in(one.path, 16));
      if (!is_png(beginning) && !is_jpeg(beginning))
        return bad_input(one.path, "is neither a PNG nor a JPEG, by its first bytes");
    }
  const SampleSpec spec = spec_of(config, list);
  const std::size_t samples = list.train.size() + list.test.size();
  return DatasetFacts{.spec = spec,
                      .train = static_cast<std::int64_t>(list.train.size()),
                      .test = static_cast<std::int64_t>(list.test.size()),
                      .bytes = samples * (spec.shape.size() + sizeof(std::int32_t))};
}

}  // namespace dtrun::worker
