// CIFAR-10 and CIFAR-100 in their binary version (https://www.cs.toronto.edu/~kriz/cifar.html): records of
// one label, for CIFAR-100 a coarse and a fine one, and 3 x 32 x 32 bytes.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "worker/data/dataset_types.h"
#include "worker/data/images/byte_images.h"
#include "worker/data/input_file.h"
#include "worker/data/message.h"
#include "worker/data/node_memory.h"

namespace dtrun::worker {
namespace {

namespace fs = std::filesystem;

constexpr SampleShape kShape{.channels = 3, .height = 32, .width = 32};

struct Form {
  std::string name;  // of the archive that has the files
  int classes;
  std::size_t labels;  // of a record; the last one counts
  std::vector<std::string> train, test;
  Normalisation normalisation;  // by mean and deviation of the training images

  std::size_t record() const { return labels + kShape.size(); }
  SampleSpec spec() const { return {.shape = kShape, .classes = classes}; }
};

Form form_of(const DataConfig& config) {
  if (config.type == DataType::kCifar10)
    return {.name = "cifar-10-binary.tar.gz",
            .classes = 10,
            .labels = 1,
            .train = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                      "data_batch_5.bin"},
            .test = {"test_batch.bin"},
            .normalisation = {.mean = {0.4914f, 0.4822f, 0.4465f},
                              .std = {0.2470f, 0.2435f, 0.2616f},
                              .text = "(byte / 255 - [0.4914, 0.4822, 0.4465]) / [0.2470, 0.2435, 0.2616]"}};
  return {.name = "cifar-100-binary.tar.gz",
          .classes = 100,
          .labels = 2,
          .train = {"train.bin"},
          .test = {"test.bin"},
          .normalisation = {.mean = {0.5071f, 0.4865f, 0.4409f},
                            .std = {0.2673f, 0.2564f, 0.2762f},
                            .text = "(byte / 255 - [0.5071, 0.4865, 0.4409]) / [0.2673, 0.2564, 0.2762]"}};
}

// One of the files, whose size tells that of its samples.
struct Records {
  InputFile file;
  std::size_t samples;
};

Result<Records> open_records(const Form& form, const fs::path& path) {
  auto file = InputFile::open(path);
  if (!file.ok())
    return Status(kExitNoInput, file.status().message() +
                                    "; set data.path to the directory with the files of " + form.name);
  const std::uint64_t size = file.value().size();
  if (size == 0 || size % form.record() != 0)
    return bad_input(path, "has " + with_thousands(size) + " bytes, which are no whole records of " +
                               with_thousands(form.record()) + "; fetch " + form.name + " again");
  return Records{.file = std::move(file).value(), .samples = size / form.record()};
}

std::vector<fs::path> paths_of(const Form& form, const DataConfig& config, Split split) {
  std::vector<fs::path> paths;
  for (const std::string& name : split == Split::kTrain ? form.train : form.test)
    paths.push_back(fs::path(config.path) / name);
  return paths;
}

Result<std::vector<Records>> open_all(const Form& form, const std::vector<fs::path>& paths) {
  std::vector<Records> all;
  for (const fs::path& path : paths) {
    ASSIGN_OR_RETURN(auto records, open_records(form, path));
    all.push_back(std::move(records));
  }
  return all;
}

std::size_t samples_of(const std::vector<Records>& all) {
  std::size_t samples = 0;
  for (const Records& one : all) samples += one.samples;
  return samples;
}

// Moves both behind what was written.
Status read_samples(const Form& form, const Records& from, std::uint8_t*& pixels, std::uint8_t*& labels) {
  std::vector<std::uint8_t> records(from.samples * form.record());
  RETURN_IF_ERROR(from.file.read(0, records));
  for (std::size_t n = 0; n < from.samples; ++n) {
    const std::uint8_t* const record = records.data() + n * form.record();
    const std::uint8_t label = record[form.labels - 1];
    if (label >= form.classes)
      return bad_input(from.file.path(), "label " + std::to_string(label) + " of sample " +
                                             with_thousands(n) + " is out of range (0 to " +
                                             std::to_string(form.classes - 1) + "): corrupt; fetch " +
                                             form.name + " again");
    *labels++ = label;
    pixels = std::copy(record + form.labels, record + form.record(), pixels);
  }
  return Status();
}

// All pixels, then all labels.
Status read_split(const Form& form, const std::vector<fs::path>& paths, const Room& room) {
  ASSIGN_OR_RETURN(const auto all, open_all(form, paths));
  const std::size_t samples = samples_of(all);
  std::uint8_t* pixels = room(samples * (kShape.size() + 1)).data();
  std::uint8_t* labels = pixels + samples * kShape.size();
  for (const Records& one : all) {
    RETURN_IF_ERROR(read_samples(form, one, pixels, labels));
  }
  return Status();
}

}  // namespace

LoadedDataset load_cifar(const DataConfig& config, Split split, NodeMemory& memory) {
  const Form form = form_of(config);
  const auto paths = paths_of(form, config, split);
  ASSIGN_OR_RETURN(const auto held, memory.bytes_of("cifar", paths, [&](const Room& room) {
    return read_split(form, paths, room);
  }));
  const std::size_t pixels = held.bytes.size() / (kShape.size() + 1) * kShape.size();
  return std::unique_ptr<Dataset>(std::make_unique<ByteImages>(
      form.spec(), form.normalisation, HeldBytes{held.bytes.first(pixels), held.memory, held.hash},
      HeldBytes{held.bytes.subspan(pixels), held.memory}));
}

Result<DatasetFacts> check_cifar(const DataConfig& config) {
  const Form form = form_of(config);
  ASSIGN_OR_RETURN(const auto train, open_all(form, paths_of(form, config, Split::kTrain)));
  ASSIGN_OR_RETURN(const auto test, open_all(form, paths_of(form, config, Split::kTest)));
  const std::size_t samples = samples_of(train), of_test = samples_of(test);
  return DatasetFacts{.spec = form.spec(),
                      .train = static_cast<std::int64_t>(samples),
                      .test = static_cast<std::int64_t>(of_test),
                      .bytes = (kShape.size() + 1) * (samples + of_test)};
}

}  // namespace dtrun::worker
