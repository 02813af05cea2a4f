#include <doctest/doctest.h>

#include <cstdlib>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/worker/data/datasets.h"

namespace dtrun::worker::cifar_test {
namespace {

using dtrun::test::Folder;
using dtrun::test::write_text;

constexpr std::size_t kImageBytes = 3 * 32 * 32;

// Sample n of a file has `n` in its first pixel, and its red, green and blue pixels are otherwise 1, 2 and 3.
std::string record(const std::string& labels, int n) {
  std::string pixels = std::string(1024, 1) + std::string(1024, 2) + std::string(1024, 3);
  pixels[0] = static_cast<char>(n);
  return labels + pixels;
}

struct Cifar10 {
  Cifar10() {
    for (int batch = 1; batch <= 5; ++batch)
      write_text(
          path("data_batch_" + std::to_string(batch) + ".bin"),
          record(std::string(1, 9), batch) + record(std::string(1, static_cast<char>(batch)), 50 + batch));
    write_text(path("test_batch.bin"), record(std::string(1, 7), 200));
  }
  std::filesystem::path path(const std::string& name) const { return folder / name; }
  DataConfig config() const { return {.type = DataType::kCifar10, .path = folder.path().string()}; }
  const Folder folder;
};

TEST_CASE("CIFAR-10's five files are one data set, in their order, normalised by channel") {
  const Cifar10 files;
  const auto facts = check_dataset(files.config());
  REQUIRE(facts.ok());
  CHECK(facts.value().train == 10);
  CHECK(facts.value().test == 1);
  CHECK(facts.value().spec == SampleSpec{.shape = {3, 32, 32}, .classes = 10});
  CHECK(facts.value().bytes == 11 * (kImageBytes + 1));
  const auto train = load_dataset(files.config(), Split::kTrain);
  CHECK(train->size() == 10);
  const Samples some = samples_of(*train, {9, 2});
  CHECK(some.targets == std::vector<std::int32_t>{5, 9});
  const auto value = [](float byte, float mean, float std) { return (byte / 255.0f - mean) / std; };
  CHECK(some.values[0] == value(55, 0.4914f, 0.2470f));
  CHECK(some.values[1] == value(1, 0.4914f, 0.2470f));
  CHECK(some.values[1024] == value(2, 0.4822f, 0.2435f));
  CHECK(some.values[3071] == value(3, 0.4465f, 0.2616f));
  CHECK(some.values[kImageBytes] == value(2, 0.4914f, 0.2470f));  // of data_batch_2
  CHECK(train->black(2) == value(0, 0.4465f, 0.2616f));
  CHECK(samples_of(*load_dataset(files.config(), Split::kTest), {0}).targets == std::vector<std::int32_t>{7});
}

TEST_CASE("CIFAR-100's classes are its fine labels") {
  const Folder folder;
  write_text(folder / "train.bin", record(std::string{3, 99}, 1) + record(std::string{19, 42}, 2));
  write_text(folder / "test.bin", record(std::string{0, 0}, 3));
  const DataConfig config{.type = DataType::kCifar100, .path = folder.path().string()};
  const auto facts = check_dataset(config);
  REQUIRE(facts.ok());
  CHECK(facts.value().spec.classes == 100);
  CHECK(samples_of(*load_dataset(config, Split::kTrain), {0, 1}).targets ==
        std::vector<std::int32_t>{99, 42});
}

TEST_CASE("a file of CIFAR that is missing, cut short, or has a label that cannot be is named") {
  const Cifar10 files;
  const std::string third = files.path("data_batch_3.bin").string();
  write_text(third, record(std::string(1, 9), 1).substr(0, 3000));
  CHECK(fault_of_both(files.config()) == third +
                                             ": has 3,000 bytes, which are no whole records of 3,073; fetch "
                                             "cifar-10-binary.tar.gz again");
  write_text(third, "");
  CHECK(fault_of_both(files.config()) ==
        third + ": has 0 bytes, which are no whole records of 3,073; fetch cifar-10-binary.tar.gz again");
  write_text(third, record(std::string(1, 9), 1) + record(std::string(1, 10), 1));
  CHECK(check_fault_of(files.config()) == "accepted");  // a worker that reads all of it finds it
  CHECK(load_fault_of(files.config()) ==
        third +
            ": label 10 of sample 1 is out of range (0 to 9): corrupt; fetch cifar-10-binary.tar.gz again");
  std::filesystem::remove(third);
  const std::string fault = fault_of_both(files.config());
  CHECK(fault.starts_with(third + ": "));
  CHECK(fault.ends_with("; set data.path to the directory with the files of cifar-10-binary.tar.gz"));
}

}  // namespace
}  // namespace dtrun::worker::cifar_test
