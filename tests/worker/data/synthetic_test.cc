#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/worker/data/datasets.h"
#include "worker/data/dataset_types.h"

namespace dtrun::worker::synthetic_test {
namespace {

DataConfig synthetic(std::vector<int> shape = {1, 4, 4}, std::int64_t samples = 1000) {
  return {
      .type = DataType::kSynthetic, .path = "", .classes = 5, .samples = samples, .shape = std::move(shape)};
}

std::vector<std::uint32_t> all_of(const Dataset& data) {
  std::vector<std::uint32_t> numbers(static_cast<std::size_t>(data.size()));
  std::iota(numbers.begin(), numbers.end(), 0u);
  return numbers;
}

TEST_CASE("it has the shape, the classes and the sizes that the config says") {
  DataConfig config = synthetic({3, 5, 7});
  config.test_fraction = 0.3;
  CHECK(check_dataset(config).ok());
  const auto train = load_dataset(config, Split::kTrain), test = load_dataset(config, Split::kTest);
  CHECK(train->spec() == SampleSpec{.shape = {3, 5, 7}, .classes = 5});
  CHECK(test->spec() == train->spec());
  CHECK(train->size() == 700);
  CHECK(test->size() == 300);
}

TEST_CASE("samples never change between versions and machines: runs must be repeatable") {
  const auto train = load_dataset(synthetic({1, 1, 6}), Split::kTrain);
  const Samples got = samples_of(*train, {0, 1, 2});
  CHECK(got.targets == std::vector<std::int32_t>{1, 4, 1});
  std::vector<float> sixtyfourths = got.values;
  for (float& value : sixtyfourths) value *= 64;
  CHECK(sixtyfourths ==
        std::vector<float>{-118, -2, -4, 42, -107, 48, -116, 9, 54, -64, 97, 141, 72, 18, -4, -22, -2, -120});
}

TEST_CASE("a sample depends on its number and the seed alone") {
  DataConfig config = synthetic();
  const auto data = load_dataset(config, Split::kTrain);
  const Samples once = samples_of(*data, {7, 3, 7});
  CHECK(std::equal(once.values.begin(), once.values.begin() + 16, once.values.begin() + 32));
  CHECK_FALSE(std::equal(once.values.begin(), once.values.begin() + 16, once.values.begin() + 16));
  CHECK(samples_of(*load_dataset(config, Split::kTrain), {7, 3, 7}).values == once.values);
  // The test goes on where the training ends.
  CHECK(samples_of(*load_dataset(config, Split::kTest), {0}).values != samples_of(*data, {0}).values);
  DataConfig larger = config;
  larger.samples = 2000;
  CHECK(samples_of(*load_dataset(config, Split::kTest), {0}).values ==
        samples_of(*load_dataset(larger, Split::kTrain), {900}).values);
  config.seed = 43;
  CHECK(samples_of(*load_dataset(config, Split::kTrain), {7, 3, 7}).values != once.values);
}

TEST_CASE("classes are equally likely, and values have a mean of about 0 and a spread of about 1") {
  const auto data = load_dataset(synthetic({1, 8, 8}, 11112), Split::kTrain);
  const Samples got = samples_of(*data, all_of(*data));
  for (std::int32_t label = 0; label < 5; ++label) {
    // Five standard deviations around the expected 2000.
    CHECK(std::abs(std::ranges::count(got.targets, label) - 2000) < 200);
  }
  double sum = 0, squares = 0;
  for (const float value : got.values) sum += value, squares += double{value} * value;
  const auto count = static_cast<double>(got.values.size());
  CHECK(std::abs(sum / count) < 0.2);
  CHECK(std::sqrt(squares / count) == doctest::Approx(1.28).epsilon(0.1));
}

// The share of the test's samples that are nearest to the mean of their class in training.
double accuracy_of_means(const DataConfig& config) {
  const auto train = load_dataset(config, Split::kTrain), test = load_dataset(config, Split::kTest);
  const std::size_t size = train->spec().shape.size();
  const auto classes = static_cast<std::size_t>(config.classes);
  std::vector<double> means(classes * size), counts(classes);
  const Samples known = samples_of(*train, all_of(*train)), asked = samples_of(*test, all_of(*test));
  for (std::size_t i = 0; i < known.targets.size(); ++i) {
    const auto label = static_cast<std::size_t>(known.targets[i]);
    ++counts[label];
    for (std::size_t k = 0; k < size; ++k) means[label * size + k] += known.values[i * size + k];
  }
  int right = 0;
  for (std::size_t i = 0; i < asked.targets.size(); ++i) {
    std::vector<double> distances(classes);
    for (std::size_t label = 0; label < classes; ++label) {
      for (std::size_t k = 0; k < size; ++k) {
        const double away = asked.values[i * size + k] - means[label * size + k] / counts[label];
        distances[label] += away * away;
      }
    }
    right += std::ranges::min_element(distances) - distances.begin() == asked.targets[i];
  }
  return right / static_cast<double>(asked.targets.size());
}

TEST_CASE("what is learned from the training samples holds for the test's") {
  CHECK(accuracy_of_means(synthetic({1, 8, 8})) > 0.95);
  const double hard = accuracy_of_means(synthetic({1, 2, 2}));
  CHECK(hard > 0.3);   // guessing would be 0.2
  CHECK(hard < 0.95);  // and the noise is there
}

TEST_CASE("any number of samples needs no memory") {
  const auto data = load_dataset(synthetic({1, 28, 28}, 4294967295), Split::kTrain);
  CHECK(data->size() == 4294967295 - 429496729);
  const Samples got = samples_of(*data, {static_cast<std::uint32_t>(data->size() - 1)});
  CHECK(got.targets[0] >= 0);
  CHECK(got.targets[0] < 5);
}

}  // namespace
}  // namespace dtrun::worker::synthetic_test
