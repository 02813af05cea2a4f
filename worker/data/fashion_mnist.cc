#include "worker/data/fashion_mnist.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <vector>

#include "worker/data/idx.h"
#include "worker/data/message.h"

namespace dtrun::worker {

namespace {

namespace fs = std::filesystem;

constexpr int kClasses = 10;
// Of the training images' pixels, scaled to 0..1.
constexpr float kMean = 0.2860f, kStd = 0.3530f;
constexpr char kValues[] = "(byte / 255 - 0.2860) / 0.3530";  // the same in words
constexpr char kWayOut[] = "; reinstall the package dataset-fashion-mnist or fetch the file again";

struct FileNames {
  const char* images;
  const char* labels;
};
FileNames names_of(Split split) {
  return split == Split::kTrain
             ? FileNames{.images = "train-images-idx3-ubyte", .labels = "train-labels-idx1-ubyte"}
             : FileNames{.images = "t10k-images-idx3-ubyte", .labels = "t10k-labels-idx1-ubyte"};
}

constexpr int kImageRank = 3, kLabelRank = 1;

Status bad_file(const fs::path& path, const Status& fault) {
  return Status(kExitNoInput, path.string() + ": " + fault.message() + kWayOut);
}

// NAME.gz if it is there, else NAME.
Result<fs::path> find_file(const fs::path& directory, const std::string& name) {
  std::error_code error;
  if (!fs::exists(directory, error)) {
    return Status(kExitNoInput, directory.string() +
                                    ": there is no such directory; set data.path to the directory with " +
                                    name + ".gz, or install the package dataset-fashion-mnist");
  }
  for (const std::string& file : {name + ".gz", name}) {
    if (fs::exists(directory / file, error)) return directory / file;
  }
  return Status(kExitNoInput, directory.string() + ": has neither " + name + ".gz nor " + name +
                                  "; set data.path to the data set's directory, or reinstall the package "
                                  "dataset-fashion-mnist");
}

// The first `most` bytes, or all.
Result<std::vector<std::uint8_t>> read_file(const fs::path& path, std::uint64_t most) {
  std::error_code error;
  const std::uint64_t size = fs::file_size(path, error);
  if (error) return Status(kExitNoInput, path.string() + ": cannot be read: " + error.message());
  std::ifstream stream(path, std::ios::binary);
  std::vector<std::uint8_t> bytes(std::min(size, most));
  errno = 0;
  if (!stream ||
      !stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()))) {
    return Status(kExitNoInput, path.string() + ": cannot be read: " +
                                    (errno ? std::strerror(errno) : "it became shorter while it was read"));
  }
  return bytes;
}

struct LoadedFile {
  fs::path path;
  IdxArray array;
};

Result<LoadedFile> load_file(const fs::path& directory, const std::string& name, int rank) {
  auto path = find_file(directory, name);
  if (!path.ok()) return path.status();
  const auto bytes = read_file(path.value(), UINT64_MAX);
  if (!bytes.ok()) return bytes.status();
  auto array = parse_idx(bytes.value(), rank);
  if (!array.ok()) return bad_file(path.value(), array.status());
  return LoadedFile{.path = path.value(), .array = std::move(array).value()};
}

struct ProbedFile {
  fs::path path;
  std::vector<std::uint32_t> dims;
};

Result<ProbedFile> probe_file(const fs::path& directory, const std::string& name, int rank) {
  auto path = find_file(directory, name);
  if (!path.ok()) return path.status();
  const auto bytes = read_file(path.value(), kIdxProbe);
  if (!bytes.ok()) return bytes.status();
  auto dims = parse_idx_dims(bytes.value(), rank);
  if (!dims.ok()) return bad_file(path.value(), dims.status());
  return ProbedFile{.path = path.value(), .dims = std::move(dims).value()};
}

// What both files' headers must agree on.
Status check_headers(const fs::path& images, const std::vector<std::uint32_t>& image_dims,
                     const fs::path& labels, const std::vector<std::uint32_t>& label_dims) {
  constexpr std::uint32_t kLargestSide = 4096;
  if (image_dims[0] != label_dims[0]) {
    return bad_file(labels, Status(kExitNoInput, "has " + with_thousands(label_dims[0]) + " labels, but " +
                                                     images.filename().string() + " has " +
                                                     with_thousands(image_dims[0]) + " images"));
  }
  if (image_dims[1] == 0 || image_dims[2] == 0 || std::max(image_dims[1], image_dims[2]) > kLargestSide) {
    return bad_file(
        images, Status(kExitNoInput, "its header says images of " + with_thousands(image_dims[1]) + " x " +
                                         with_thousands(image_dims[2]) + " pixels: corrupt"));
  }
  return Status();
}

Status check_labels(const fs::path& path, const std::vector<std::uint8_t>& labels) {
  const auto wrong =
      std::find_if(labels.begin(), labels.end(), [](std::uint8_t label) { return label >= kClasses; });
  if (wrong == labels.end()) return Status();
  return bad_file(
      path, Status(kExitNoInput, "label " + std::to_string(*wrong) + " of sample " +
                                     with_thousands(static_cast<std::uint64_t>(wrong - labels.begin())) +
                                     " is out of range (0 to 9)"));
}

std::array<float, 256> normalised_pixels() {
  std::array<float, 256> table;
  for (int value = 0; value < 256; ++value) {
    table[static_cast<std::size_t>(value)] = (static_cast<float>(value) / 255.0f - kMean) / kStd;
  }
  return table;
}

class FashionMnist : public Dataset {
 public:
  FashionMnist(IdxArray images, std::vector<std::uint8_t> labels)
      : shape_{1, static_cast<int>(images.dims[1]), static_cast<int>(images.dims[2])},
        pixels_(std::move(images.values)),
        labels_(std::move(labels)) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(labels_.size()); }
  SampleSpec spec() const override { return {.shape = shape_, .classes = kClasses}; }
  std::string values() const override { return kValues; }

  void fill(std::span<const std::uint32_t> samples, const SampleRows& rows) const override {
    const std::size_t size = shape_.size();
    float* x = rows.values;
    std::int32_t* labels = rows.targets;
    for (std::uint32_t sample : samples) {
      const std::uint8_t* pixels = pixels_.data() + sample * size;
      for (std::size_t i = 0; i < size; ++i) x[i] = normalised_[pixels[i]];
      x += size;
      *labels++ = labels_[sample];
    }
  }

 private:
  SampleShape shape_;
  std::vector<std::uint8_t> pixels_;  // [samples, height, width]; the floats would take four times the memory
  std::vector<std::uint8_t> labels_;
  const std::array<float, 256> normalised_ = normalised_pixels();
};

// The images' file, once its labels fit it.
Result<ProbedFile> probe_split(const fs::path& directory, Split split) {
  auto images = probe_file(directory, names_of(split).images, kImageRank);
  if (!images.ok()) return images.status();
  const auto labels = probe_file(directory, names_of(split).labels, kLabelRank);
  if (!labels.ok()) return labels.status();
  const Status status =
      check_headers(images.value().path, images.value().dims, labels.value().path, labels.value().dims);
  if (!status.ok()) return status;
  return images;
}

std::string size_text(const ProbedFile& images) {
  return with_thousands(images.dims[1]) + " x " + with_thousands(images.dims[2]) + " pixels";
}

}  // namespace

Result<std::unique_ptr<Dataset>> load_fashion_mnist(const DataConfig& config, Split split) {
  const fs::path directory = config.path;
  auto images = load_file(directory, names_of(split).images, kImageRank);
  if (!images.ok()) return images.status();
  auto labels = load_file(directory, names_of(split).labels, kLabelRank);
  if (!labels.ok()) return labels.status();
  auto& [image_path, image_array] = images.value();
  auto& [label_path, label_array] = labels.value();
  Status status = check_headers(image_path, image_array.dims, label_path, label_array.dims);
  if (status.ok()) status = check_labels(label_path, label_array.values);
  if (!status.ok()) return status;
  return std::unique_ptr<Dataset>(
      std::make_unique<FashionMnist>(std::move(image_array), std::move(label_array.values)));
}

Status check_fashion_mnist(const DataConfig& config) {
  const fs::path directory = config.path;
  const auto train = probe_split(directory, Split::kTrain);
  if (!train.ok()) return train.status();
  const auto test = probe_split(directory, Split::kTest);
  if (!test.ok()) return test.status();
  if (size_text(train.value()) == size_text(test.value())) return Status();
  return bad_file(test.value().path,
                  Status(kExitNoInput, "has images of " + size_text(test.value()) + ", but " +
                                           train.value().path.filename().string() + " has images of " +
                                           size_text(train.value())));
}

}  // namespace dtrun::worker
