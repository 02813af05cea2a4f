// The planned lane's loops, every set that this processor runs, against the definitions in fp64, at sizes
// that fit no vector; and each set against the first, bit by bit.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "tests/worker/model/programs.h"
#include "worker/core/dropout.h"
#include "worker/device/cpu/planned/kernels.h"

namespace dtrun::planned_kernels_test {

using namespace dtrun::worker;
using PlannedKernels = planned::Kernels;

namespace {

using Floats = std::vector<float>;

constexpr std::size_t kSizes[] = {1, 2, 7, 15, 16, 17, 31, 64, 100, 257};

// What the first set gave, in the order in which it was checked, and how much of it another set has repeated.
std::vector<Floats> of_first_set;
std::size_t repeated = 0;

void check_as_first_set(const Floats& got) {
  if (repeated == of_first_set.size()) of_first_set.push_back(got);
  const Floats& first = of_first_set[repeated++];
  REQUIRE(got.size() == first.size());
  CHECK(std::memcmp(got.data(), first.data(), got.size() * sizeof(float)) == 0);
}

void for_each_set(const std::function<void(const PlannedKernels&)>& run) {
  const InstructionSets<planned::Kernels> sets = planned::available_kernels();
  REQUIRE(sets.count >= 1);
  of_first_set.clear();
  for (int i = 0; i < sets.count; ++i) {
    CAPTURE(sets.sets[i]->instruction_set);
    repeated = 0;
    run(*sets.sets[i]);
    CHECK(repeated == of_first_set.size());
  }
}

void check_near(const Floats& got, const std::function<double(std::size_t)>& wanted, double tolerance) {
  check_as_first_set(got);
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i] == doctest::Approx(wanted(i)).epsilon(tolerance).scale(1));
  }
}

}  // namespace

TEST_CASE("GELU and its slope are right from far below zero to far above") {
  const auto gelu = [](double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  };
  for_each_set([&](const PlannedKernels& k) {
    Floats x;
    for (double value = -30; value <= 30; value += 0.01) x.push_back(static_cast<float>(value));
    Floats y(x.size()), slope(x.size(), 5), ones(x.size(), 1);
    k.gelu(x.size(), x.data(), y.data());
    check_near(
        y, [&](std::size_t i) { return gelu(x[i]); }, 1e-6);
    k.gelu_backward(x.size(), x.data(), ones.data(), false, slope.data());
    const auto wanted = [&](std::size_t i) { return (gelu(x[i] + 1e-5) - gelu(x[i] - 1e-5)) / 2e-5; };
    check_near(slope, wanted, 2e-6);
    k.gelu_backward(x.size(), x.data(), ones.data(), true, slope.data());
    check_near(
        slope, [&](std::size_t i) { return 2 * wanted(i); }, 4e-6);
    float nan = NAN;
    k.gelu(1, &nan, &nan);
    CHECK(std::isnan(nan));
  });
}

TEST_CASE("a causal softmax sums to one over what a row may see, and is zero behind it") {
  for_each_set([](const PlannedKernels& k) {
    for (const std::size_t first : {std::size_t{0}, std::size_t{3}, std::size_t{64}}) {
      const std::size_t rows = 20, width = first + rows, stride = width + 3;
      const Floats scores = random_values(1, rows * stride, 20);
      Floats p = scores;
      k.causal_softmax(rows, first, width, stride, p.data());
      for (std::size_t r = 0; r < rows; ++r) {
        double sum = 0;
        const float* row = scores.data() + r * stride;
        const std::size_t seen = first + r + 1;
        for (std::size_t i = 0; i < seen; ++i) sum += std::exp(double{row[i]});
        for (std::size_t i = 0; i < width; ++i)
          CHECK(p[r * stride + i] ==
                doctest::Approx(i < seen ? std::exp(double{row[i]}) / sum : 0).epsilon(2e-6).scale(0.01));
        // Memory between rows is left alone.
        CHECK(p[r * stride + width] == row[width]);
      }
    }
  });
}

TEST_CASE("a row's loss, its gradient and its first largest logit") {
  for_each_set([](const PlannedKernels& k) {
    for (const std::size_t classes : kSizes) {
      CAPTURE(classes);
      Floats logits = random_values(classes, classes, 8);
      const auto target = static_cast<std::int32_t>(classes / 2);
      if (classes > 4) logits[2] = logits[classes - 1] = 9;
      double sum = 0;
      for (const float value : logits) sum += std::exp(double{value});
      const auto wanted = std::max_element(logits.begin(), logits.end()) - logits.begin();
      std::int32_t largest = -1;
      Floats gradient = logits;
      const float loss = k.classify(classes, target, 0, true, gradient.data(), &largest);
      CHECK(largest == wanted);
      check_near(
          {loss}, [&](std::size_t) { return std::log(sum) - logits[target]; }, 1e-6);
      check_near(
          gradient,
          [&](std::size_t i) {
            return std::exp(double{logits[i]}) / sum - (i == static_cast<std::size_t>(target));
          },
          1e-6);
      const Floats before = logits;
      CHECK(k.classify(classes, target, 0, false, logits.data(), &largest) == loss);
      CHECK(logits == before);
      // A tenth of the target spread over all classes.
      double mean = 0;
      for (const float value : logits) mean += (std::log(sum) - value) / static_cast<double>(classes);
      gradient = logits;
      CHECK(k.classify(classes, target, 0.1f, true, gradient.data(), &largest) ==
            doctest::Approx(0.9 * (std::log(sum) - logits[target]) + 0.1 * mean).epsilon(1e-6).scale(1));
      check_near(
          gradient,
          [&](std::size_t i) {
            return std::exp(double{logits[i]}) / sum - 0.1 / static_cast<double>(classes) -
                   0.9 * (i == static_cast<std::size_t>(target));
          },
          1e-6);
      // Tested for its values by tests/torch.
      Floats taught = logits, teacher = random_values(classes + 1, classes, 8), scratch(2 * classes);
      check_as_first_set({k.distill(classes, target, 0.1f, 2, 0.3f, teacher.data(), scratch.data(),
                                    taught.data(), &largest)});
      check_as_first_set(taught);
      CHECK(largest == wanted);
      // A teacher who says the same adds nothing to its part of the targets' loss.
      taught = teacher = logits;
      CHECK(k.distill(classes, target, 0.1f, 2, 0.75f, teacher.data(), scratch.data(), taught.data(),
                      &largest) ==
            doctest::Approx(0.25 * (0.9 * (std::log(sum) - logits[target]) + 0.1 * mean))
                .epsilon(1e-5)
                .scale(1));
      for (std::size_t i = 0; i < classes; ++i) CHECK(taught[i] == 0.25f * gradient[i]);
    }
  });
}

TEST_CASE("layer norm: moments, output, and what is added to what") {
  for_each_set([](const PlannedKernels& k) {
    for (const std::size_t width : kSizes) {
      CAPTURE(width);
      const std::size_t rows = 3;
      const Floats x = random_values(1, rows * width, 3), weight = random_values(2, width),
                   bias = random_values(3, width), d = random_values(4, rows * width);
      Floats moments(2 * rows), y(rows * width), dx(rows * width, 9), dw(width, 9), db(width, 9);
      k.layer_norm(rows, width, 1e-5f, x.data(), weight.data(), bias.data(), moments.data(), y.data());
      std::vector<double> normal(rows * width), scale(rows);
      for (std::size_t r = 0; r < rows; ++r) {
        double mean = 0, square = 0;
        for (std::size_t i = 0; i < width; ++i) mean += x[r * width + i] / static_cast<double>(width);
        for (std::size_t i = 0; i < width; ++i)
          square += std::pow(x[r * width + i] - mean, 2) / static_cast<double>(width);
        scale[r] = 1 / std::sqrt(square + 1e-5);
        for (std::size_t i = 0; i < width; ++i) normal[r * width + i] = (x[r * width + i] - mean) * scale[r];
      }
      const double tolerance = width == 1 ? 1e-3 : 1e-5;  // with one value the deviation is that of epsilon
      check_near(
          y, [&](std::size_t i) { return normal[i] * weight[i % width] + bias[i % width]; }, tolerance);
      const auto input_gradient = [&](std::size_t i) {
        const std::size_t r = i / width;
        double mean = 0, along = 0;
        for (std::size_t j = 0; j < width; ++j) {
          const double part = double{d[r * width + j]} * weight[j] / static_cast<double>(width);
          mean += part, along += part * normal[r * width + j];
        }
        return scale[r] * (double{d[i]} * weight[i % width] - mean - normal[i] * along);
      };
      k.layer_norm_backward(rows, width, x.data(), weight.data(), moments.data(), d.data(), false, dx.data(),
                            false, dw.data(), db.data());
      if (width > 1) check_near(dx, input_gradient, 2e-5);
      const auto weight_gradient = [&](std::size_t i) {
        double sum = 0;
        for (std::size_t r = 0; r < rows; ++r) sum += d[r * width + i] * normal[r * width + i];
        return sum;
      };
      check_near(dw, weight_gradient, tolerance);
      const Floats once = dx;
      k.layer_norm_backward(rows, width, x.data(), weight.data(), moments.data(), d.data(), true, dx.data(),
                            true, dw.data(), db.data());
      check_near(
          dx, [&](std::size_t i) { return 2.0 * once[i]; }, 1e-6);
      check_near(
          dw, [&](std::size_t i) { return 2 * weight_gradient(i); }, 2 * tolerance);
      k.layer_norm_backward(rows, width, x.data(), weight.data(), moments.data(), d.data(), false, nullptr,
                            false, dw.data(), db.data());
      check_near(
          db, [&](std::size_t i) { return double{d[i]} + d[width + i] + d[2 * width + i]; }, 1e-6);
    }
  });
}

TEST_CASE("dropout keeps what the stream says, on every set alike") {
  const MicrobatchKey key{.seed = 0x123456789abcdef, .number = 0x500000003};
  const RandomStream::Words words = dropout_stream(key, 7).words();
  const planned::DropoutStream stream{{words.key[0], words.key[1]}, words.a, words.b, words.use};
  for_each_set([&](const PlannedKernels& k) {
    for (const std::size_t count : kSizes) {
      const Floats in(count, 3);
      Floats out(count);
      k.dropout(count, stream, 0.3f, in.data(), false, out.data());
      for (std::size_t i = 0; i < count; ++i)
        CHECK(out[i] == (keeps(dropout_stream(key, 7), i, 0.3f) ? 3 * (1 / (1 - 0.3f)) : 0));
      k.dropout(count, stream, 0.3f, in.data(), true, out.data());
      for (std::size_t i = 0; i < count; ++i) CHECK((out[i] == 0 || out[i] > 8));
    }
    Floats many(100000, 1);
    k.dropout(many.size(), stream, 0.3f, many.data(), false, many.data());
    CHECK(std::ranges::count(many, 0.0f) == doctest::Approx(30000).epsilon(0.02));
  });
}

TEST_CASE("sums of rows, ReLU and additions") {
  for_each_set([](const PlannedKernels& k) {
    for (const std::size_t width : {std::size_t{1}, std::size_t{17}, std::size_t{513}, std::size_t{1025}}) {
      const Floats rows = random_values(1, 3 * width);
      Floats sum(width, 4);
      k.sum_rows(3, width, rows.data(), false, sum.data());
      for (std::size_t i = 0; i < width; ++i)
        CHECK(sum[i] == rows[i] + rows[width + i] + rows[2 * width + i]);
      k.sum_rows(1, width, rows.data(), true, sum.data());
      Floats out(width), d(width, 2);
      k.relu(width, rows.data(), out.data());
      for (std::size_t i = 0; i < width; ++i) CHECK(out[i] == std::max(rows[i], 0.0f));
      k.relu_backward(width, out.data(), rows.data() + width, true, d.data());
      for (std::size_t i = 0; i < width; ++i) CHECK(d[i] == 2 + (rows[i] > 0 ? rows[width + i] : 0.0f));
    }
  });
}

}  // namespace dtrun::planned_kernels_test
