// Random changes of training images.
#include "worker/data/images/augment.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tests/worker/data/datasets.h"

namespace dtrun::worker::augment_test {
namespace {

constexpr EpochKey kKey{.seed = 7, .epoch = 3};

DataConfig config(int padding, double flip) {
  DataConfig data;
  data.type = DataType::kSynthetic;
  data.random_crop_padding = padding, data.random_horizontal_flip = flip;
  data.samples = 100, data.shape = {3, 6, 5};
  return data;
}

std::vector<float> applied(const Change& change, const SampleShape& shape, const std::vector<float>& image,
                           const std::vector<float>& black) {
  std::vector<float> out(image.size(), -1);
  apply(change, shape, black.data(), image.data(), out.data());
  return out;
}

TEST_CASE("a crop shows the image moved, with black where it has nothing; a flip is after it") {
  const SampleShape shape{.channels = 2, .height = 2, .width = 3};
  const std::vector<float> image{1, 2, 3, 4, 5, 6, 10, 20, 30, 40, 50, 60}, black{0, 7};
  CHECK(applied({}, shape, image, black) == image);
  CHECK(applied({.down = 1, .right = 1}, shape, image, black) ==
        std::vector<float>{5, 6, 0, 0, 0, 0, 50, 60, 7, 7, 7, 7});
  CHECK(applied({.down = -1, .right = -2}, shape, image, black) ==
        std::vector<float>{0, 0, 0, 0, 0, 1, 7, 7, 7, 7, 7, 10});
  CHECK(applied({.flipped = true}, shape, image, black) ==
        std::vector<float>{3, 2, 1, 6, 5, 4, 30, 20, 10, 60, 50, 40});
  CHECK(applied({.down = 0, .right = 1, .flipped = true}, shape, image, black) ==
        std::vector<float>{0, 3, 2, 0, 6, 5, 7, 30, 20, 7, 60, 50});
  for (const int far : {3, 5, 100})  // beyond the image
    CHECK(applied({.down = 0, .right = far}, shape, image, black) ==
          std::vector<float>{0, 0, 0, 0, 0, 0, 7, 7, 7, 7, 7, 7});
}

TEST_CASE("each shift is as likely as another, and so many images are flipped as the config says") {
  const DataConfig data = config(4, 0.25);
  constexpr int kSamples = 20000;
  std::map<int, int> down, right;
  int flipped = 0;
  for (std::uint32_t sample = 0; sample < kSamples; ++sample) {
    const Change change = change_of(data, kKey, sample);
    ++down[change.down], ++right[change.right], flipped += change.flipped;
  }
  for (const auto& counts : {down, right}) {
    CHECK(counts.size() == 9);
    CHECK(counts.begin()->first == -4);
    CHECK(counts.rbegin()->first == 4);
    for (const auto& [shift, count] : counts)
      CHECK(std::abs(count - kSamples / 9) < 6 * std::sqrt(kSamples / 9.0));
  }
  CHECK(std::abs(flipped - kSamples / 4) < 6 * std::sqrt(kSamples * 0.25 * 0.75));
  CHECK(change_of(config(0, 0), kKey, 5) == Change{});
  CHECK(change_of(config(0, 1), kKey, 5) == Change{.flipped = true});
}

TEST_CASE("a sample's change follows from seed, epoch and sample alone") {
  const DataConfig data = config(4, 0.5);
  const auto changes = [&](const EpochKey& key) {
    std::vector<Change> all;
    for (std::uint32_t sample = 0; sample < 50; ++sample) all.push_back(change_of(data, key, sample));
    return all;
  };
  CHECK(changes(kKey) == changes(kKey));
  CHECK(changes({.seed = 7, .epoch = 4}) != changes(kKey));
  CHECK(changes({.seed = 8, .epoch = 3}) != changes(kKey));
  // In whatever microbatch it is, beside whichever others.
  const auto train = load_dataset(data, Split::kTrain);
  const auto filled = [&](const std::vector<std::uint32_t>& numbers) {
    Samples got = samples_of(*train, numbers);
    train->augment(numbers, kKey, {.values = got.values.data(), .targets = got.targets.data()});
    return got;
  };
  const std::size_t size = train->spec().shape.size();
  const Samples three = filled({4, 9, 2}), one = filled({9});
  CHECK(std::equal(one.values.begin(), one.values.end(), three.values.begin() + size));
  CHECK(one.targets[0] == three.targets[1]);
  CHECK(filled({0, 1, 2, 3, 4, 5}).values != samples_of(*train, {0, 1, 2, 3, 4, 5}).values);
}

TEST_CASE("the test split is never changed, and rows of numbers are no images") {
  const auto test = load_dataset(config(4, 1), Split::kTest);
  Samples got = samples_of(*test, {0, 1});
  const std::vector<float> before = got.values;
  test->augment(std::vector<std::uint32_t>{0, 1}, kKey, {.values = got.values.data()});
  CHECK(got.values == before);
  DataConfig rows = config(4, 0);
  rows.shape = {1, 1, 30};
  CHECK_THROWS_WITH_AS(
      load_dataset(rows, Split::kTrain),
      "/data/random_crop_padding and /data/random_horizontal_flip are for images, and samples are "
      "1x1x30; leave them out",
      WorkerError);
}

}  // namespace
}  // namespace dtrun::worker::augment_test
