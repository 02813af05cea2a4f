#include <doctest/doctest.h>

#include <functional>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/worker/data/datasets.h"
#include "worker/data/dataset_types.h"

namespace dtrun::worker::csv_dataset_test {
namespace {

using dtrun::test::contains;
using dtrun::test::Folder;
using dtrun::test::write_text;

DataConfig csv_at(const std::filesystem::path& path) {
  return {.type = DataType::kCsv, .path = path.string(), .test_fraction = 0.25, .classes = 4};
}

TEST_CASE("a directory has a file for each split") {
  const Folder folder;
  write_text(folder / "train.csv", "x,y,label\n1,2,0\n3,4,1\n5,6,3\n");
  write_text(folder / "test.csv", "x,y,label\n7,8,2\n");
  const DataConfig config = csv_at(folder.path());
  CHECK(check_fault_of(config) == "accepted");
  const auto train = load_dataset(config, Split::kTrain), test = load_dataset(config, Split::kTest);
  CHECK(train->spec() == SampleSpec{.shape = {1, 1, 2}, .classes = 4});
  CHECK(test->spec() == train->spec());
  CHECK(train->size() == 3);
  const Samples got = samples_of(*train, {2, 0});
  CHECK(got.values == std::vector<float>{5, 6, 1, 2});
  CHECK(got.targets == std::vector<std::int32_t>{3, 0});
  CHECK(test->size() == 1);
  CHECK(samples_of(*test, {0}).values == std::vector<float>{7, 8});
}

TEST_CASE("the last rows of one file are for the test") {
  const Folder folder;
  std::string text;
  for (int row = 0; row < 10; ++row) text += std::to_string(row % 4) + "," + std::to_string(row) + "\n";
  write_text(folder / "all.csv", text);
  DataConfig config = csv_at(folder / "all.csv");
  config.label_column = "1";
  const auto facts = check_dataset(config);
  REQUIRE_MESSAGE(facts.ok(), facts.status().message());
  CHECK(facts.value().bytes == 2 * 10 * 2 * sizeof(float));  // each split keeps what it has read
  const auto train = load_dataset(config, Split::kTrain), test = load_dataset(config, Split::kTest);
  CHECK(train->size() == 8);
  CHECK(test->size() == 2);
  CHECK(samples_of(*train, {7}).values == std::vector<float>{7});
  CHECK(samples_of(*test, {0, 1}).values == std::vector<float>{8, 9});
  CHECK(samples_of(*test, {0, 1}).targets == std::vector<std::int32_t>{0, 1});
}

TEST_CASE("a table longer than what is read at a time is read whole") {
  const Folder folder;
  std::string text = "label,x\n";
  constexpr int kRows = 300000;  // 3 MB
  for (int row = 0; row < kRows; ++row) text += std::to_string(row % 4) + "," + std::to_string(row) + "\n";
  write_text(folder / "all.csv", text);
  const auto train = load_dataset(csv_at(folder / "all.csv"), Split::kTrain);
  REQUIRE(train->size() == kRows * 3 / 4);
  CHECK(samples_of(*train, {0, 123456, 224999}).values == std::vector<float>{0, 123456, 224999});
}

TEST_CASE("what was guessed of a table is said in a line") {
  const Folder folder;
  const auto guessed = [&](const std::string& text, const std::string& label) {
    write_text(folder / "all.csv", text);
    DataConfig config = csv_at(folder / "all.csv");
    config.label_column = label;
    return load_dataset(config, Split::kTrain)->guessed();
  };
  CHECK(guessed("x,y,kind\n1,2,0\n3,4,1\n", "kind") == "header: yes; label: column 3 \"kind\"; 2 features");
  CHECK(guessed("0,5\n1,7\n", "1") == "header: no; label: column 1; 1 feature");
  CHECK(guessed(",x,y\n0,2,0\n1,4,1\n", "y") ==
        "header: yes; label: column 3 \"y\"; 1 feature; column 1 has no name: it is taken for an index, and "
        "left out");
}

TEST_CASE("a test split that lacks classes though many rows have them is told, one by chance is not") {
  const Folder folder;
  const auto doubts = [&](int rows, const std::function<int(int)>& label_of) {
    std::string text = "label,x\n";
    for (int row = 0; row < rows; ++row) text += std::to_string(label_of(row)) + ",1\n";
    write_text(folder / "all.csv", text);
    const DataConfig config = csv_at(folder / "all.csv");
    CHECK(load_dataset(config, Split::kTrain)->doubts() == "");
    return load_dataset(config, Split::kTest)->doubts();
  };
  CHECK(doubts(60, [](int row) { return row / 20; }) ==
        "its rows seem to be sorted by class: the last 15, which are the test, have only class 2 of 3, so "
        "that an "
        "accuracy says little; shuffle the rows");
  CHECK(contains(doubts(60, [](int row) { return row / 15 < 2    ? 0
                                                 : row / 15 == 2 ? 1 + row % 2
                                                                 : 1; }),
                 "have only class 1 of 3"));
  CHECK(doubts(60, [](int row) { return row % 3; }) == "");
  CHECK(doubts(60, [](int) { return 3; }) == "");
  CHECK(doubts(100, [](int row) { return row == 0 ? 3 : row % 2; }) == "");  // one row is easily missed
  CHECK(doubts(4, [](int row) { return row / 2; }) == "");                   // and so is all of so few
}

TEST_CASE("a fault names the file, the line and the column") {
  const Folder folder;
  const std::string good = "x,label\n1,2\n3,1\n";
  write_text(folder / "train.csv", "x,label\n1,2\nthree,1\n");
  write_text(folder / "test.csv", good);
  const DataConfig config = csv_at(folder.path());
  CHECK(fault_of_both(config) ==
        (folder / "train.csv").string() +
            ": line 3, column 1: \"three\" is not a number that fp32 has; each column "
            "must hold one, so write others as numbers or leave them out");
  write_text(folder / "train.csv", good);
  write_text(folder / "test.csv", "x,label\n1,4\n");
  CHECK(contains(check_fault_of(config), "test.csv: line 2, column 2: \"4\" is not a label from 0 to 3"));
  write_text(folder / "test.csv", "x,y,label\n1,1,1\n");
  CHECK(contains(check_fault_of(config),
                 "test.csv: has 3 columns, but train.csv has 2; they must be the same"));
  write_text(folder / "test.csv", "");
  CHECK(contains(check_fault_of(config), "test.csv: is empty"));
  write_text(folder / "train.csv", good.substr(0, 13));
  CHECK(contains(fault_of_both(config),
                 "train.csv: line 3 has 1 columns, but line 1 has 2; the file may be cut"));
}

TEST_CASE("a fault far down is found when the file is loaded") {
  const Folder folder;
  std::string text = "x,label\n";
  for (int row = 0; row < 200; ++row) text += "1,2\n";
  write_text(folder / "all.csv", text + "1,x\n");
  CHECK(check_fault_of(csv_at(folder / "all.csv")) == "accepted");
  CHECK(contains(load_fault_of(csv_at(folder / "all.csv")),
                 "all.csv: line 202, column 2: \"x\" is not a label"));
  write_text(folder / "all.csv", "x,label\n1,2\n");
  CHECK(contains(load_fault_of(csv_at(folder / "all.csv")),
                 "all.csv: has one row only: none is left for the test"));
}

TEST_CASE("a file that is missing or cannot be read is named") {
  const Folder folder;
  CHECK(contains(fault_of_both(csv_at(folder / "no.csv")),
                 "no.csv: cannot be read: No such file or directory; check"));
  const std::string fault = fault_of_both(csv_at(folder.path()));
  CHECK(contains(fault, "train.csv: cannot be read: No such file or directory;"));
  CHECK(contains(fault, "; a directory must hold train.csv and test.csv, or data.path be one file"));
  write_text(folder / "train.csv", "x,label\n1,2\n");
  CHECK(contains(check_fault_of(csv_at(folder.path())),
                 "test.csv: cannot be read: No such file or directory;"));
  {
    const Unreadable nobody(folder / "train.csv");
    CHECK(contains(fault_of_both(csv_at(folder / "train.csv")),
                   "train.csv: cannot be read: Permission denied"));
  }
  std::filesystem::create_directory(folder / "test.csv");
  CHECK(contains(check_fault_of(csv_at(folder.path())), "test.csv: cannot be read: it is a directory"));
}

}  // namespace
}  // namespace dtrun::worker::csv_dataset_test
