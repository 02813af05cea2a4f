#include <doctest/doctest.h>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/worker/data/datasets.h"
#include "tests/worker/data/idx_files.h"
#include "worker/data/dataset_types.h"

namespace dtrun::worker::idx_dataset_test {
namespace {

using dtrun::test::contains;
using dtrun::test::Folder;
using dtrun::test::write_text;

std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (const int value : values) text += static_cast<char>(value);
  return text;
}

// Three training and two test samples of four bytes each, in the shape wanted.
class FourBytes {
 public:
  explicit FourBytes(const std::vector<std::uint32_t>& shape = {2, 2}) {
    write("train-images-idx3-ubyte", array(3, shape, bytes({0, 1, 2, 3, 127, 128, 254, 255, 9, 9, 9, 9})));
    write("train-labels-idx1-ubyte", idx_file({3}, bytes({0, 25, 5})));
    write("t10k-images-idx3-ubyte", array(2, shape, "abcdefgh"));
    write("t10k-labels-idx1-ubyte", idx_file({2}, bytes({1, 2})));
  }
  static std::string array(std::uint32_t samples, std::vector<std::uint32_t> shape,
                           const std::string& values) {
    shape.insert(shape.begin(), samples);
    return idx_file(shape, values);
  }
  std::filesystem::path path(const std::string& name) const { return folder_ / name; }
  void write(const std::string& name, const std::string& content) { write_text(path(name), content); }
  void rename(const std::string& from, const std::string& to) {
    std::filesystem::rename(path(from), path(to));
  }
  DataConfig config() const {
    return {
        .type = DataType::kIdx, .path = folder_.path().string(), .classes = 26, .mean = {0.5}, .std = {0.25}};
  }

 private:
  Folder folder_;
};

TEST_CASE("arrays of two, three and four dimensions are rows, images and images with channels") {
  struct Case {
    std::vector<std::uint32_t> stored;
    SampleShape shape;
  };
  const Case cases[] = {{{4}, {1, 1, 4}},       {{2, 2}, {1, 2, 2}},    {{1, 4}, {1, 1, 4}},
                        {{4, 1}, {1, 4, 1}},    {{1, 2, 2}, {1, 2, 2}}, {{4, 1, 1}, {4, 1, 1}},
                        {{2, 1, 2}, {2, 1, 2}}, {{2, 2, 1}, {2, 2, 1}}};
  for (const Case& c : cases) {
    const FourBytes files(c.stored);
    CHECK(check_fault_of(files.config()) == "accepted");
    const auto train = load_dataset(files.config(), Split::kTrain);
    CHECK(train->spec() == SampleSpec{.shape = c.shape, .classes = 26});
    CHECK(train->size() == 3);
    const Samples got = samples_of(*train, {1, 0});
    CHECK(got.targets == std::vector<std::int32_t>{25, 0});
    const std::vector<float> wanted = {(127 / 255.0f - 0.5f) / 0.25f,
                                       (128 / 255.0f - 0.5f) / 0.25f,
                                       (254 / 255.0f - 0.5f) / 0.25f,
                                       2.0f,
                                       -2.0f,
                                       (1 / 255.0f - 0.5f) / 0.25f,
                                       (2 / 255.0f - 0.5f) / 0.25f,
                                       (3 / 255.0f - 0.5f) / 0.25f};
    CHECK(got.values == wanted);
    CHECK(load_dataset(files.config(), Split::kTest)->size() == 2);
  }
}

TEST_CASE("without mean and std a byte becomes 0 to 1, and the model's file says how") {
  const FourBytes files;
  DataConfig config = files.config();
  CHECK(load_dataset(config, Split::kTrain)->values() == "(byte / 255 - 0.5) / 0.25");
  config.mean = DataConfig().mean, config.std = DataConfig().std;
  const auto train = load_dataset(config, Split::kTrain);
  CHECK(train->values() == "(byte / 255 - 0) / 1");
  CHECK(samples_of(*train, {1}).values == std::vector<float>{127 / 255.0f, 128 / 255.0f, 254 / 255.0f, 1.0f});
}

TEST_CASE("the same files give the same bits as fashion_mnist") {
  FourBytes files;
  files.write("train-labels-idx1-ubyte", idx_file({3}, bytes({0, 9, 5})));
  DataConfig config = files.config();
  config.classes = 10, config.mean = {0.2860}, config.std = {0.3530};
  const auto idx = load_dataset(config, Split::kTrain);
  config.type = DataType::kFashionMnist;
  const auto fashion = load_dataset(config, Split::kTrain);
  CHECK(idx->spec() == fashion->spec());
  CHECK(samples_of(*idx, {0, 1, 2}).values == samples_of(*fashion, {0, 1, 2}).values);
}

TEST_CASE("names tell what a file is for, as those of EMNIST do") {
  FourBytes files;
  files.rename("train-images-idx3-ubyte", "emnist-letters-train-images-idx3-ubyte");
  files.rename("train-labels-idx1-ubyte", "emnist-letters-train-labels-idx1-ubyte");
  files.rename("t10k-images-idx3-ubyte", "emnist-letters-test-images-idx3-ubyte");
  files.rename("t10k-labels-idx1-ubyte", "emnist-letters-test-labels-idx1-ubyte");
  files.write("emnist-letters-mapping.txt", "not an array");
  CHECK(check_fault_of(files.config()) == "accepted");
  CHECK(load_dataset(files.config(), Split::kTest)->size() == 2);
  // Both spellings of one file: the compressed one is taken.
  files.write("emnist-letters-train-labels-idx1-ubyte.gz", gzip(idx_file({3}, bytes({7, 7, 7}))));
  CHECK(samples_of(*load_dataset(files.config(), Split::kTrain), {1}).targets ==
        std::vector<std::int32_t>{7});
  files.write("emnist-digits-train-labels-idx1-ubyte", idx_file({3}, bytes({7, 7, 7})));
  CHECK(contains(fault_of_both(files.config()),
                 ": has emnist-digits-train-labels-idx1-ubyte and emnist-letters-train-labels-idx1-ubyte: "
                 "which has the labels to train on? Leave one of them"));
}

TEST_CASE("each of the files may be missing, and is named") {
  struct Case {
    const char *name, *fault;
  };
  const Case cases[] = {
      {"train-images-idx3-ubyte",
       ": has no IDX file of images to train on, with a name like train-images-idx3-ubyte.gz; set data.path"},
      {"train-labels-idx1-ubyte",
       ": has no IDX file of labels to train on, with a name like train-labels-idx1-ubyte.gz; set"},
      {"t10k-images-idx3-ubyte",
       ": has no IDX file of images to test with, with a name like t10k-images-idx3-ubyte.gz; set"},
      {"t10k-labels-idx1-ubyte",
       ": has no IDX file of labels to test with, with a name like t10k-labels-idx1-ubyte.gz; set"}};
  for (const Case& c : cases) {
    const FourBytes files;
    std::filesystem::remove(files.path(c.name));
    const std::string fault = check_fault_of(files.config());
    CHECK_MESSAGE(contains(fault, c.fault), fault);
  }
  DataConfig nowhere = FourBytes().config();  // its folder is gone
  CHECK(contains(fault_of_both(nowhere), ": cannot be read: No such file or directory; set data.path to"));
}

TEST_CASE("a damaged file is named, with what is wrong") {
  struct Case {
    const char* name;
    std::string content, fault;
  };
  const Case cases[] = {
      {"train-images-idx3-ubyte", "", ": file ends after 0 of 12 bytes: truncated"},
      {"train-images-idx3-ubyte", "xxxxxxxxxx",
       ": begins with 78 78 78 78 where 00 00 08 02 to 00 00 08 04 is expected: not an IDX file"},
      {"train-images-idx3-ubyte", idx_file({3}, "abc"),
       ": begins with 00 00 08 01 where 00 00 08 02 to 00 00 08 04 is expected: an IDX file of labels"},
      {"train-images-idx3-ubyte", idx_file({3, 1, 1, 1, 1}, "abc"),
       ": begins with 00 00 08 05 where 00 00 08 02 to 00 00 08 04 is expected: IDX with another number of"},
      {"train-images-idx3-ubyte", idx_file({3, 2, 2, 1}, "").substr(0, 18),
       ": file ends after 18 of 20 bytes: truncated"},
      {"train-images-idx3-ubyte", idx_file({2, 2, 2}, "abcdefgh"),
       "train-labels-idx1-ubyte: has 3 labels, but train-images-idx3-ubyte has 2 images"},
      {"train-images-idx3-ubyte", idx_file({3, 1, 4097, 1}, std::string(3 * 4097, 'x')),
       ": its header says images of 1 x 4,097 x 1 pixels: corrupt"},
      {"train-images-idx3-ubyte", idx_file({3, (1 << 24) + 1}, "x"),
       ": its header says images of 16,777,217 values: corrupt"},
      {"t10k-images-idx3-ubyte", idx_file({2, 4}, "abcdefgh"),
       "t10k-images-idx3-ubyte: has images of 4 values, but train-images-idx3-ubyte has images of 2 x 2 "
       "pixels"},
  };
  for (const Case& c : cases) {
    FourBytes files;
    files.write(c.name, c.content);
    const std::string fault = check_fault_of(files.config());
    CHECK_MESSAGE(contains(fault, c.fault), fault);
    CHECK_MESSAGE(contains(fault, "; check data.path and data.classes, or fetch the file again"), fault);
  }
}

TEST_CASE("what only a whole read can find is found when the file is loaded") {
  FourBytes files;
  DataConfig config = files.config();
  config.classes = 25;
  CHECK(contains(load_fault_of(config),
                 "train-labels-idx1-ubyte: label 25 of sample 1 is out of range (0 to 24)"));
  config.classes = 26;
  CHECK(load_fault_of(config) == "accepted");
  files.write("train-images-idx3-ubyte", idx_file({3, 2, 2}, "abcdefghijk"));
  CHECK(
      contains(load_fault_of(config), "train-images-idx3-ubyte: file ends after 27 of 28 bytes: truncated"));
  std::filesystem::remove(files.path("train-images-idx3-ubyte"));
  std::filesystem::create_directory(files.path("train-images-idx3-ubyte"));
  CHECK(contains(fault_of_both(config), "train-images-idx3-ubyte: cannot be read: Is a directory"));
  files.write("train-images-idx3-ubyte.gz", gzip(idx_file({3, 2, 2}, "abcdefghijkl")));
  CHECK(load_fault_of(config) == "accepted");
}

TEST_CASE("a file that may not be read is named") {
  const FourBytes files;
  const Unreadable nobody(files.path(""));
  CHECK(contains(fault_of_both(files.config()), ": cannot be read: Permission denied; set data.path to"));
}

TEST_CASE("a row may be as long as 2^24 values") {
  FourBytes files;
  files.write("train-images-idx3-ubyte", idx_file({1, 1 << 24}, std::string(1 << 24, 'x')));
  files.write("train-labels-idx1-ubyte", idx_file({1}, "\1"));
  CHECK(load_fault_of(files.config()) == "accepted");
}

}  // namespace
}  // namespace dtrun::worker::idx_dataset_test
