// The real files, where the package dataset-fashion-mnist is installed; a skip elsewhere.
#include <doctest/doctest.h>

#include <filesystem>
#include <numeric>

#include "tests/support/skip.h"
#include "worker/data/dataset.h"

namespace dtrun::worker::fashion_mnist_files_test {
namespace {

TEST_CASE("Debian's Fashion-MNIST loads whole, with the mean and spread that normalising assumes") {
  const DataConfig config{DataType::kFashionMnist, "/usr/share/datasets/fashion-mnist"};
  if (!std::filesystem::exists(config.path))
    return dtrun::test::skip("the package dataset-fashion-mnist is not installed");
  CHECK(check_dataset(config).ok());
  CHECK(load_dataset(config, Split::kTest)->size() == 10000);
  const auto data = load_dataset(config, Split::kTrain);
  CHECK(data->size() == 60000);
  CHECK(data->spec().shape.size() == 28 * 28);

  std::vector<std::uint32_t> samples(1000);
  std::iota(samples.begin(), samples.end(), 0u);
  std::vector<float> x(samples.size() * data->spec().shape.size());
  std::vector<std::int32_t> labels(samples.size());
  data->fill(samples, {.values = x.data(), .targets = labels.data()});
  double sum = 0, squares = 0;
  for (float value : x) {
    sum += value;
    squares += double{value} * value;
  }
  const double mean = sum / static_cast<double>(x.size());
  CHECK(mean == doctest::Approx(0).epsilon(0.05));
  CHECK(squares / static_cast<double>(x.size()) - mean * mean == doctest::Approx(1).epsilon(0.05));
  CHECK(labels[0] == 9);  // an ankle boot
}

}  // namespace
}  // namespace dtrun::worker::fashion_mnist_files_test
