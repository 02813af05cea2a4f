#include "worker/data/dataset.h"

#include <doctest/doctest.h>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/worker/data/idx_files.h"
#include "worker/base/error.h"

namespace dtrun::worker::dataset_test {
namespace {

using dtrun::test::contains;
using dtrun::test::Folder;
using dtrun::test::write_text;

// Four files of a data set with 3 training and 2 test images of 2 x 2 pixels.
class SmallDataset {
 public:
  SmallDataset() {
    write("train-images-idx3-ubyte",
          idx_file({3, 2, 2}, std::string("\x00\x01\x02\x03\x7f\x80\xfe\xff....", 12)));
    write("train-labels-idx1-ubyte", idx_file({3}, std::string("\x00\x09\x05", 3)));
    write("t10k-images-idx3-ubyte", idx_file({2, 2, 2}, "abcdefgh"));
    write("t10k-labels-idx1-ubyte", idx_file({2}, std::string("\x01\x02", 2)));
  }
  void write(const std::string& name, const std::string& content) {
    write_text(directory_.path() / name, content);
  }
  void remove(const std::string& name) { std::filesystem::remove(directory_.path() / name); }
  std::string path() const { return directory_.path().string(); }
  DataConfig config() const { return {DataType::kFashionMnist, path()}; }

 private:
  Folder directory_;
};

std::string load_fault(const DataConfig& config) {
  try {
    load_dataset(config, Split::kTrain);
  } catch (const WorkerError& error) {
    CHECK(error.exit_code() == kExitNoInput);
    return error.what();
  }
  return "accepted";
}

TEST_CASE("samples come normalised, in the order asked for") {
  const SmallDataset files;
  const auto data = load_dataset(files.config(), Split::kTrain);
  CHECK(data->size() == 3);
  CHECK(data->spec() == SampleSpec{.shape = {1, 2, 2}, .classes = 10});
  float x[8];
  std::int32_t labels[2];
  const std::uint32_t samples[] = {1, 0};
  data->fill(samples, {.values = x, .targets = labels});
  CHECK(labels[0] == 9);
  CHECK(labels[1] == 0);
  CHECK(x[0] == doctest::Approx((127.0 / 255 - 0.2860) / 0.3530));
  CHECK(x[3] == doctest::Approx((1.0 - 0.2860) / 0.3530));
  CHECK(x[4] == doctest::Approx(-0.2860 / 0.3530));
  CHECK(check_dataset(files.config()).ok());
}

TEST_CASE("a .gz file is preferred to the one without") {
  SmallDataset files;
  files.write("train-labels-idx1-ubyte.gz", gzip(idx_file({3}, std::string("\x07\x07\x07", 3))));
  const auto data = load_dataset(files.config(), Split::kTrain);
  std::vector<float> x(4);
  std::int32_t label = 0;
  const std::uint32_t sample[] = {0};
  data->fill(sample, {.values = x.data(), .targets = &label});
  CHECK(label == 7);
}

TEST_CASE("missing files and directories are named, with the way out") {
  SmallDataset files;
  const DataConfig nowhere{DataType::kFashionMnist, "/nonexistent/data"};
  CHECK(contains(load_fault(nowhere), "/nonexistent/data: there is no such directory; set data.path"));
  CHECK(check_dataset(nowhere).status().message() == load_fault(nowhere));
  files.remove("train-labels-idx1-ubyte");
  const std::string fault =
      files.path() +
      ": has neither train-labels-idx1-ubyte.gz nor train-labels-idx1-ubyte; set data.path to "
      "the data set's directory, or reinstall the package dataset-fashion-mnist";
  CHECK(load_fault(files.config()) == fault);
  CHECK(check_dataset(files.config()).status().message() == fault);
  CHECK(check_dataset(files.config()).status().exit_code() == kExitNoInput);
}

TEST_CASE("files that do not belong together are refused") {
  SmallDataset files;
  files.write("train-labels-idx1-ubyte", idx_file({2}, std::string("\x01\x02", 2)));
  CHECK(contains(load_fault(files.config()), "has 2 labels, but train-images-idx3-ubyte has 3 images"));
  CHECK(contains(check_dataset(files.config()).status().message(),
                 "has 2 labels, but train-images-idx3-ubyte has 3 images"));
}

TEST_CASE("a label out of range is named with its sample") {
  SmallDataset files;
  files.write("train-labels-idx1-ubyte", idx_file({3}, std::string("\x01\x02\x0a", 3)));
  CHECK(load_fault(files.config()) ==
        files.path() +
            "/train-labels-idx1-ubyte: label 10 of sample 2 is out of range (0 to 9); reinstall the package "
            "dataset-fashion-mnist or fetch the file again");
}

TEST_CASE("images of no or absurd size are refused") {
  SmallDataset files;
  files.write("train-images-idx3-ubyte", idx_file({3, 1, 60000}, std::string(180000, 'x')));
  CHECK(contains(load_fault(files.config()), "images of 1 x 60,000 pixels: corrupt"));
  for (const std::uint32_t side : {4096u, 4097u}) {
    CAPTURE(side);
    const std::string pixels(3 * side, 'x');
    files.write("train-images-idx3-ubyte", idx_file({3, 1, side}, pixels));
    const std::string wide = load_fault(files.config());
    files.write("train-images-idx3-ubyte", idx_file({3, side, 1}, pixels));
    const std::string high = load_fault(files.config());
    CHECK((wide == "accepted") == (side == 4096));
    CHECK((high == "accepted") == (side == 4096));
  }
}

TEST_CASE("a directory in place of a file is an error that names it") {
  SmallDataset files;
  files.remove("train-images-idx3-ubyte");
  std::filesystem::create_directory(files.path() + "/train-images-idx3-ubyte");
  CHECK(contains(load_fault(files.config()), "/train-images-idx3-ubyte: cannot be read: Is a directory"));
}

TEST_CASE("the look before the start finds a damaged beginning of each of the four files") {
  for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                           "t10k-labels-idx1-ubyte"}) {
    SmallDataset files;
    files.write(name, "not an array");
    const Status status = check_dataset(files.config()).status();
    CHECK(status.exit_code() == kExitNoInput);
    CHECK(contains(status.message(), std::string(name) + ": begins with 6e 6f 74 20"));
    files.write(name, "");
    CHECK(contains(check_dataset(files.config()).status().message(), "file ends after 0 of"));
  }
}

}  // namespace
}  // namespace dtrun::worker::dataset_test
