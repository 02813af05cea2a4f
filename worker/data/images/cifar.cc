// CIFAR-10 and CIFAR-100 in their binary version (https://www.cs.toronto.edu/~kriz/cifar.html): records of
// one label, for CIFAR-100 a coarse and a fine one, and 3 x 32 x 32 bytes.
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "worker/data/dataset_types.h"
#include "worker/data/images/byte_images.h"
#include "worker/data/input_file.h"
#include "worker/data/message.h"

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

// Samples of a file, by its size.
Result<std::size_t> samples_of(const Form& form, const fs::path& path) {
  const auto file = InputFile::open(path);
  if (!file.ok())
    return Status(kExitNoInput, file.status().message() +
                                    "; set data.path to the directory with the files of " + form.name);
  const std::uint64_t size = file.value().size();
  if (size == 0 || size % form.record() != 0)
    return bad_input(path, "has " + with_thousands(size) + " bytes, which are no whole records of " +
                               with_thousands(form.record()) + "; fetch " + form.name + " again");
  return size / form.record();
}

Result<std::size_t> samples_of_all(const Form& form, const fs::path& directory,
                                   const std::vector<std::string>& names) {
  std::size_t samples = 0;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const auto some, samples_of(form, directory / name));
    samples += some;
  }
  return samples;
}

// Appends the file's samples.
Status read_file(const Form& form, const fs::path& path, std::vector<std::uint8_t>& pixels,
                 std::vector<std::uint8_t>& labels) {
  ASSIGN_OR_RETURN(const auto samples, samples_of(form, path));
  ASSIGN_OR_RETURN(const auto file, InputFile::open(path));
  std::vector<std::uint8_t> records(samples * form.record());
  RETURN_IF_ERROR(file.read(0, records));
  for (std::size_t n = 0; n < samples; ++n) {
    const std::uint8_t* const record = records.data() + n * form.record();
    const std::uint8_t label = record[form.labels - 1];
    if (label >= form.classes)
      return bad_input(path, "label " + std::to_string(label) + " of sample " + with_thousands(n) +
                                 " is out of range (0 to " + std::to_string(form.classes - 1) +
                                 "): corrupt; fetch " + form.name + " again");
    labels.push_back(label);
    pixels.insert(pixels.end(), record + form.labels, record + form.record());
  }
  return Status();
}

}  // namespace

LoadedDataset load_cifar(const DataConfig& config, Split split) {
  const Form form = form_of(config);
  std::vector<std::uint8_t> pixels, labels;
  for (const std::string& name : split == Split::kTrain ? form.train : form.test) {
    RETURN_IF_ERROR(read_file(form, fs::path(config.path) / name, pixels, labels));
  }
  return std::unique_ptr<Dataset>(
      std::make_unique<ByteImages>(form.spec(), form.normalisation, std::move(pixels), std::move(labels)));
}

Result<DatasetFacts> check_cifar(const DataConfig& config) {
  const Form form = form_of(config);
  ASSIGN_OR_RETURN(const auto train, samples_of_all(form, config.path, form.train));
  ASSIGN_OR_RETURN(const auto test, samples_of_all(form, config.path, form.test));
  return DatasetFacts{.spec = form.spec(),
                      .train = static_cast<std::int64_t>(train),
                      .test = static_cast<std::int64_t>(test),
                      .bytes = (kShape.size() + 1) * (train + test)};
}

}  // namespace dtrun::worker
