#include "worker/data/images/idx_pair.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "worker/data/images/byte_images.h"
#include "worker/data/message.h"

namespace dtrun::worker {

namespace {

namespace fs = std::filesystem;

constexpr int kLabelRank = 1;

Status bad_file(const IdxForm& form, const fs::path& path, const std::string& fault) {
  return bad_input(path, fault + form.way_out);
}

// The first `most` bytes, or all.
Result<std::vector<std::uint8_t>> read_file(const fs::path& path, std::uint64_t most) {
  std::error_code error;
  const std::uint64_t size = fs::file_size(path, error);
  if (error) return bad_input(path, "cannot be read: " + error.message());
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

// An IDX file's content, not compressed.
Result<HeldBytes> load_file(const IdxForm& form, const fs::path& path, IdxRank rank, NodeMemory& memory) {
  return memory.bytes_of("idx", {path}, [&](const Room& room) {
    const auto bytes = read_file(path, UINT64_MAX);
    if (!bytes.ok()) return bytes.status();
    const auto array = parse_idx(bytes.value(), rank, room);
    return array.ok() ? Status() : bad_file(form, path, array.status().message());
  });
}

using Dims = std::vector<std::uint32_t>;

Result<Dims> probe_file(const IdxForm& form, const fs::path& path, IdxRank rank) {
  ASSIGN_OR_RETURN(const auto bytes, read_file(path, kIdxProbe));
  auto dims = parse_idx_dims(bytes, rank);
  if (!dims.ok()) return bad_file(form, path, dims.status().message());
  return dims;
}

// "28 x 28 pixels"
std::string size_text(const Dims& images) {
  std::string text;
  for (std::size_t i = 1; i < images.size(); ++i) text += (i > 1 ? " x " : "") + with_thousands(images[i]);
  return text + (images.size() == 2 ? " values" : " pixels");
}

// REQUIRES: check_headers() has accepted the dimensions.
SampleShape shape_of(const Dims& images) {
  const auto dim = [&](std::size_t from_end) {
    return from_end < images.size() ? static_cast<int>(images[images.size() - from_end]) : 1;
  };
  return {.channels = dim(3), .height = dim(2), .width = dim(1)};
}

// Checks that the headers of both files agree.
Status check_headers(const IdxForm& form, const IdxPair& files, const Dims& images, const Dims& labels) {
  constexpr std::uint32_t kLargestSide = 4096, kLargestRow = 1 << 24;
  if (images[0] != labels[0]) {
    return bad_file(form, files.labels,
                    "has " + with_thousands(labels[0]) + " labels, but " + files.images.filename().string() +
                        " has " + with_thousands(images[0]) + " images");
  }
  const auto [smallest, largest] = std::minmax_element(images.begin() + 1, images.end());
  if (*smallest == 0 || *largest > (images.size() == 2 ? kLargestRow : kLargestSide)) {
    return bad_file(form, files.images, "its header says images of " + size_text(images) + ": corrupt");
  }
  return Status();
}

Status check_labels(const IdxForm& form, const fs::path& path, Bytes labels) {
  const auto wrong = std::ranges::find_if(labels, [&](std::uint8_t label) { return label >= form.classes; });
  if (wrong == labels.end()) return Status();
  return bad_file(form, path,
                  "label " + std::to_string(*wrong) + " of sample " +
                      with_thousands(static_cast<std::uint64_t>(wrong - labels.begin())) +
                      " is out of range (0 to " + std::to_string(form.classes - 1) + ")");
}

// The images' dimensions, once the labels fit them.
Result<Dims> probe_pair(const IdxForm& form, const IdxPair& files) {
  ASSIGN_OR_RETURN(auto images, probe_file(form, files.images, form.rank));
  ASSIGN_OR_RETURN(const auto labels, probe_file(form, files.labels, kLabelRank));
  RETURN_IF_ERROR(check_headers(form, files, images, labels));
  return images;
}

}  // namespace

Result<std::unique_ptr<Dataset>> load_idx_pair(const IdxForm& form, const IdxPair& files,
                                               NodeMemory& memory) {
  ASSIGN_OR_RETURN(const auto images_file, load_file(form, files.images, form.rank, memory));
  ASSIGN_OR_RETURN(const auto labels_file, load_file(form, files.labels, kLabelRank, memory));
  const IdxArray images = idx_array(images_file.bytes), labels = idx_array(labels_file.bytes);
  Status status = check_headers(form, files, images.dims, labels.dims);
  if (status.ok()) status = check_labels(form, files.labels, labels.values);
  if (!status.ok()) return status;
  const SampleSpec spec{.shape = shape_of(images.dims), .classes = form.classes};
  ASSIGN_OR_RETURN(const auto normalisation, form.normalisation(spec.shape.channels));
  return std::unique_ptr<Dataset>(std::make_unique<ByteImages>(
      spec, normalisation, HeldBytes{images.values, images_file.memory, images_file.hash},
      HeldBytes{labels.values, labels_file.memory, labels_file.hash}));
}

Result<DatasetFacts> check_idx_pairs(const IdxForm& form, const IdxPair& train, const IdxPair& test) {
  ASSIGN_OR_RETURN(const auto train_dims, probe_pair(form, train));
  ASSIGN_OR_RETURN(const auto test_dims, probe_pair(form, test));
  const SampleSpec spec{.shape = shape_of(train_dims), .classes = form.classes};
  if (const auto fits = form.normalisation(spec.shape.channels); !fits.ok()) return fits.status();
  if (spec.shape == shape_of(test_dims)) {
    const std::int64_t samples = train_dims[0], of_test = test_dims[0];
    const std::uint64_t bytes = spec.shape.size() + 1;  // a sample and its label
    return DatasetFacts{.spec = spec,
                        .train = samples,
                        .test = of_test,
                        .bytes = bytes * static_cast<std::uint64_t>(samples + of_test)};
  }
  return bad_file(form, test.images,
                  "has images of " + size_text(test_dims) + ", but " + train.images.filename().string() +
                      " has images of " + size_text(train_dims));
}

}  // namespace dtrun::worker
