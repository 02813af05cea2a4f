#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/worker/data/datasets.h"
#include "tests/worker/data/image_files.h"
#include "worker/data/dataset_types.h"

namespace dtrun::worker::image_folder_test {
namespace {

using dtrun::test::contains;
using dtrun::test::Folder;

namespace fs = std::filesystem;

// A folder of 2 x 2 images, each of one colour.
class Images {
 public:
  void add(const std::string& name, unsigned char value) const { write(name, one_colour(value)); }
  void write(const std::string& name, const std::string& content) const {
    fs::create_directories((folder_ / name).parent_path());
    dtrun::test::write_text(folder_ / name, content);
  }
  static std::string one_colour(unsigned char value) {
    return png_file(2, std::vector<std::string>(2, std::string(6, static_cast<char>(value))));
  }
  DataConfig config() const {
    return {.type = DataType::kImageFolder, .path = folder_.path().string(), .image_size = {2, 2}};
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  const Folder& folder() const { return folder_; }

 private:
  const Folder folder_;
};

// The first value of each sample, as the byte that it was, with its label.
std::vector<std::pair<int, int>> bytes_of(const Dataset& data) {
  std::vector<std::uint32_t> all;
  for (std::int64_t i = 0; i < data.size(); ++i) all.push_back(static_cast<std::uint32_t>(i));
  const Samples got = samples_of(data, all);
  std::vector<std::pair<int, int>> bytes;
  for (std::size_t i = 0; i < all.size(); ++i)
    bytes.emplace_back(static_cast<int>(got.values[i * data.spec().shape.size()] * 255 + 0.5f),
                       got.targets[i]);
  return bytes;
}

TEST_CASE("the folders of train are the classes, in the order of their names, and val is the test") {
  const Images images;
  images.add("train/b cat/1.png", 10);
  images.add("train/a dog/2.PNG", 20);
  images.add("train/a dog/10.jpeg", 30);  // the content counts, not the suffix
  images.add("train/\xc3\xa4/deep/in/x.jpg", 40);
  images.write("train/a dog/Thumbs.db", "no image");
  images.write("train/a dog/.hidden.png", "no image");
  images.add("val/b cat/1.png", 50);
  const DataConfig config = images.config();
  const auto facts = check_dataset(config);
  REQUIRE_MESSAGE(facts.ok(), facts.status().message());
  CHECK(facts.value().train == 4);
  CHECK(facts.value().test == 1);
  CHECK(facts.value().bytes == 5 * (3 * 2 * 2 + 4));
  const auto train = load_dataset(config, Split::kTrain), test = load_dataset(config, Split::kTest);
  CHECK(train->spec() == SampleSpec{.shape = {3, 2, 2}, .classes = 3});
  CHECK(test->spec() == train->spec());
  CHECK(bytes_of(*train) == std::vector<std::pair<int, int>>{{30, 0}, {20, 0}, {10, 1}, {40, 2}});
  CHECK(bytes_of(*test) == std::vector<std::pair<int, int>>{{50, 1}});
  CHECK(train->guessed() ==
        "3 classes from 0 \"a dog\" to 2 \"\xc3\xa4\"; the test is val/; left out: 1 file of "
        "other kinds");
  CHECK(train->contents() != test->contents());
  CHECK(train->contents() == load_dataset(config, Split::kTrain)->contents());
}

TEST_CASE("without a folder for the test the seed draws its images, of all classes alike") {
  const Images images;
  for (int i = 0; i < 100; ++i)
    images.add((i < 50 ? "a/" : "b/") + std::to_string(1000 + i) + ".png", static_cast<unsigned char>(i));
  DataConfig config = images.config();
  config.test_fraction = 0.2;
  const auto split_of = [&](std::uint64_t seed) {
    config.seed = seed;
    return std::pair(bytes_of(*load_dataset(config, Split::kTrain)),
                     bytes_of(*load_dataset(config, Split::kTest)));
  };
  const auto [train, test] = split_of(1);
  CHECK(train.size() == 80);
  CHECK(test.size() == 20);
  CHECK(std::ranges::is_sorted(train));
  CHECK(std::ranges::is_sorted(test));
  std::set<int> all;
  for (const auto& part : {train, test})
    for (const auto& [byte, label] : part) {
      CHECK(label == (byte < 50 ? 0 : 1));
      all.insert(byte);
    }
  CHECK(all.size() == 100);
  const auto of_a = std::ranges::count(test, 0, &std::pair<int, int>::second);
  CHECK(of_a > 3);
  CHECK(of_a < 17);
  CHECK(split_of(1).second == test);
  CHECK(split_of(2).second != test);
  CHECK(contains(load_dataset(config, Split::kTrain)->guessed(), "data.seed draws 20 of them for the test"));
}

TEST_CASE("a class may be called train") {
  const Images images;
  images.add("train/1.png", 1), images.add("train/2.png", 2), images.add("car/1.png", 3);
  const auto train = load_dataset(images.config(), Split::kTrain);
  CHECK(train->spec().classes == 2);
  CHECK(train->size() == 2);
}

TEST_CASE("each image is resized, its middle is cut out, and its channels are those asked for") {
  const Images images;
  std::vector<std::string> rows(4);
  for (int y = 0; y < 4; ++y)
    for (int x = 0; x < 8; ++x)
      rows[static_cast<std::size_t>(y)] +=
          std::string{static_cast<char>(8 * x), static_cast<char>(y), '\x07'};
  images.write("a/1.png", png_file(8, rows)), images.write("a/2.png", png_file(8, rows));
  images.write("b/1.png", png_file(8, rows)), images.write("b/2.png", png_file(8, rows));
  DataConfig config = images.config();
  config.image_size = {4, 2};
  const auto values = [&] {
    std::vector<int> bytes;
    for (const float value : samples_of(*load_dataset(config, Split::kTrain), {0}).values)
      bytes.push_back(static_cast<int>(value * 255 + 0.5f));
    return bytes;
  };
  CHECK(values() ==
        std::vector<int>{24, 32, 24, 32, 24, 32, 24, 32, 0, 0, 1, 1, 2, 2, 3, 3, 7, 7, 7, 7, 7, 7, 7, 7});
  config.channels = 1;
  CHECK(values() == std::vector<int>{8, 10, 9, 11, 9, 12, 10, 12});
  config.channels = 3, config.mean = {0, 0, 7 / 255.0}, config.std = {1, 1, 2};
  CHECK(samples_of(*load_dataset(config, Split::kTrain), {0}).values.back() == doctest::Approx(0));
  CHECK(load_dataset(config, Split::kTrain)->values().starts_with("(byte / 255 - [0, 0, 0.02"));
  config.mean = {0, 1};
  CHECK(contains(check_dataset(config).status().message(),
                 "/data/mean and /data/std are one number, or one for each channel, of which there are 3"));
}

TEST_CASE("broken files are all named at once, the first ones by what is wrong") {
  const Images images;
  const std::string good = Images::one_colour(9);
  for (int i = 0; i < 20; ++i) images.write("train/a/" + std::to_string(10 + i) + ".png", good);
  images.write("train/b/1.png", good), images.write("val/a/1.png", good);
  images.write("train/a/12.png", good.substr(0, good.size() / 2));
  images.write("train/a/15.png", "GIF89a");
  images.write("train/b/2.png", "");
  CHECK(check_fault_of(images.config()) == "accepted");  // it looks at the first of each class
  CHECK(load_fault_of(images.config()) ==
        images.path("train/a/12.png") + ": is broken: the file ends too early; " +
            images.path("train/a/15.png") + ": is neither a PNG nor a JPEG, by its first bytes; " +
            images.path("train/b/2.png") +
            ": is empty. Fetch such files again, or take them out of data.path");
  for (int i = 0; i < 20; ++i) images.write("train/a/" + std::to_string(10 + i) + ".png", "x");
  CHECK(contains(load_fault_of(images.config()),
                 "a/14.png: is neither a PNG nor a JPEG, by its first bytes; and "
                 "16 more. Fetch"));
  CHECK(
      contains(check_fault_of(images.config()), "a/10.png: is neither a PNG nor a JPEG, by its first bytes"));
}

TEST_CASE("folders that are no classes of images are named") {
  const Images images;
  CHECK(contains(fault_of_both(images.config()), "has 0 folders, but each class needs one"));
  images.add("train/a/1.png", 1);
  CHECK(contains(fault_of_both(images.config()), "/train: has 1 folder, but each class needs one"));
  fs::create_directories(images.path("train/b"));
  CHECK(contains(fault_of_both(images.config()),
                 "/train/b: has no images (.png, .jpg, .jpeg); put some in, or take"));
  images.add("train/b/1.png", 1);
  images.add("val/c/1.png", 1);
  CHECK(contains(fault_of_both(images.config()), "/val/c: is no class of " + images.path("train")));
  fs::remove_all(images.path("val/c"));
  CHECK(contains(fault_of_both(images.config()), "/val: has no images (.png, .jpg, .jpeg) to test with"));
  images.write("val/a/1.webp", "RIFF");
  CHECK(contains(fault_of_both(images.config()), "/val/a/1.webp: is neither PNG nor JPEG; convert it"));
  CHECK(contains(
      fault_of_both({.type = DataType::kImageFolder, .path = "/nonexistent"}),
      "/nonexistent: cannot be read: No such file or directory; set data.path to the folder with train/"));
}

}  // namespace
}  // namespace dtrun::worker::image_folder_test
