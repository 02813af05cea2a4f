// The loss of rows of logits and its gradient, against the definition in fp64 and the CPU's loop.
#include "worker/device/cuda/kernels/cross_entropy.h"

#include "tests/worker/device/cuda/kernels/run.h"
#include "worker/device/cpu/planned/kernels.h"
#include "worker/vector/update.h"

namespace dtrun::cross_entropy_test {

using namespace dtrun::worker;
using namespace dtrun::worker::cuda::testing;

namespace {

struct LogitsShape {
  std::size_t rows, real, classes, padded;
};

template <typename T>
auto run_classify(const LogitsShape& s, const std::vector<T>& logits,
                  const std::vector<std::int32_t>& targets, float smoothing, bool gradient) {
  return in_all_orders([&] {
    const Memory<std::int32_t> classes(targets);
    const Memory<std::uint32_t> real(std::vector<std::uint32_t>{static_cast<std::uint32_t>(s.real)});
    std::tuple all{Memory<T>(logits), Memory<float>(s.rows), Memory<float>(s.rows)};
    cuda::classify<T>(nullptr, s.rows, real.data(), s.classes, s.padded, classes.data(), smoothing, gradient,
                      std::get<0>(all).data(), std::get<1>(all).data(), std::get<2>(all).data());
    synchronize();
    return all;
  });
}

}  // namespace

TEST_CASE_TEMPLATE("loss, hits and gradient of real rows; nothing of the others", T, DTRUN_ACTIVATIONS) {
  for (const LogitsShape& s : {LogitsShape{1, 1, 1, 1},
                               {4, 3, 3, 3},
                               {3, 3, 7, 8},
                               {5, 2, 64, 64},
                               {3, 3, 100, 128},
                               {2, 2, 257, 257},
                               {3, 2, 1500, 1536},
                               {2, 2, 9000, 9088}})
    for (const float smoothing : {0.0f, 0.1f})
      for (const bool training : {true, false}) {
        CAPTURE(s.classes);
        CAPTURE(smoothing);
        CAPTURE(training);
        std::vector<T> logits = random_values<T>(1, s.rows * s.padded, 3);
        std::vector<std::int32_t> targets(s.rows);
        for (std::size_t r = 0; r < s.rows; ++r) {
          T* const row = logits.data() + r * s.padded;
          for (std::size_t c = s.classes; c < s.padded; ++c) row[c] = T(100.0f);  // must not be seen
          // Of two equally large ones the first is the hit; row 1 aims at the second of them.
          if (s.classes > 5) row[2] = row[s.classes - 1] = T(20.0f);
          targets[r] = static_cast<std::int32_t>(r == 1   ? s.classes - 1
                                                 : r == 0 ? std::min<std::size_t>(2, s.classes - 1)
                                                          : 0);
        }
        const auto [gradient, loss, correct] = run_classify(s, logits, targets, smoothing, training);
        std::vector<double> wanted_gradient(s.rows * s.padded), wanted_loss(s.rows), wanted_correct(s.rows);
        for (std::size_t r = 0; r < s.rows; ++r) {
          const T* const row = logits.data() + r * s.padded;
          if (!training)
            for (std::size_t c = 0; c < s.padded; ++c) wanted_gradient[r * s.padded + c] = value_of(row[c]);
          if (r >= s.real) continue;
          std::vector<float> x(s.classes);
          for (std::size_t c = 0; c < s.classes; ++c) x[c] = value_of(row[c]);
          const auto largest = std::max_element(x.begin(), x.end());
          wanted_correct[r] = largest - x.begin() == targets[r];
          double sum = 0, mean = 0;
          for (const float logit : x) sum += std::exp(static_cast<double>(logit) - *largest);
          const double log_sum = std::log(sum) + *largest;
          for (const float logit : x) mean += (log_sum - logit) / s.classes;
          wanted_loss[r] = (1 - smoothing) * (log_sum - x[targets[r]]) + smoothing * mean;
          for (std::size_t c = 0; training && c < s.classes; ++c)
            wanted_gradient[r * s.padded + c] = std::exp(x[c] - log_sum) - smoothing / s.classes -
                                                (static_cast<int>(c) == targets[r] ? 1 - smoothing : 0);
          // The CPU's words for the same.
          std::int32_t index = -1;
          const float of_cpu =
              planned::kernels().classify(s.classes, targets[r], smoothing, false, x.data(), &index);
          CHECK(loss[r] == doctest::Approx(of_cpu).epsilon(2e-6).scale(1));
          CHECK((index == targets[r]) == (correct[r] == 1));
        }
        check_near(gradient, wanted_gradient, 1e-6);
        check_near(loss, wanted_loss, 1e-6, 4);
        check_near(correct, wanted_correct, 0);
      }
}

TEST_CASE_TEMPLATE("logits that are not finite", T, DTRUN_ACTIVATIONS) {
  const LogitsShape s{.rows = 5, .real = 5, .classes = 40, .padded = 40};
  std::vector<T> logits = random_values<T>(2, s.rows * s.padded);
  const auto row = [&](int r) { return logits.data() + r * s.padded; };
  row(0)[7] = T(-INFINITY);                                   // impossible: as if it were not there
  row(1)[7] = T(NAN);                                         // spoils the row
  std::fill_n(row(2), 32, T(-INFINITY));                      // whole packs of a lane
  row(3)[7] = T(INFINITY);                                    // infinity - infinity
  std::fill_n(row(4), 32, T(-INFINITY)), row(4)[8] = T(NAN);  // NaN among what a lane passes over
  const auto [gradient, loss, correct] = run_classify(s, logits, {0, 0, 35, 0, 36}, 0, true);
  CHECK(std::isfinite(loss[0]));
  CHECK(gradient[7] == 0);
  CHECK(std::isnan(loss[1]));
  CHECK(std::isnan(gradient[s.padded + 3]));
  CHECK(std::isfinite(loss[2]));
  CHECK(gradient[2 * s.padded + 5] == 0);
  CHECK(std::isnan(loss[3]));
  CHECK(std::isnan(loss[4]));
}

TEST_CASE_TEMPLATE("a teacher's part of the loss and of the gradient is the CPU's", T, DTRUN_ACTIVATIONS) {
  for (const LogitsShape& s : {LogitsShape{1, 1, 1, 1}, {4, 3, 10, 16}, {3, 2, 100, 128}, {2, 2, 1500, 1536}})
    for (const float alpha : {0.3f, 1.0f}) {
      CAPTURE(s.classes);
      CAPTURE(alpha);
      const float smoothing = 0.1f, temperature = 2.5f;
      const std::size_t padded = s.padded + 8;  // the teacher's
      std::vector<T> logits = random_values<T>(1, s.rows * s.padded, 3),
                     taught = random_values<T>(2, s.rows * padded, 3);
      for (std::size_t r = 0; r < s.rows; ++r) {
        std::fill(&logits[r * s.padded] + s.classes, &logits[r * s.padded] + s.padded,
                  T(100.0f));  // must not be seen
        std::fill(&taught[r * padded] + s.classes, &taught[r * padded] + padded, T(100.0f));
      }
      const std::vector<std::int32_t> targets(s.rows, static_cast<std::int32_t>(s.classes / 2));
      const auto [gradient, loss, correct] = in_all_orders([&] {
        const Memory<std::int32_t> classes(targets);
        const Memory<std::uint32_t> real(std::vector<std::uint32_t>{static_cast<std::uint32_t>(s.real)});
        const Memory<T> teacher(taught);
        std::tuple all{Memory<T>(logits), Memory<float>(s.rows), Memory<float>(s.rows)};
        cuda::distill<T>(
            nullptr, s.rows, real.data(), s.classes, s.padded, classes.data(), smoothing,
            {.logits = teacher.data(), .padded = padded, .temperature = temperature, .alpha = alpha},
            std::get<0>(all).data(), std::get<1>(all).data(), std::get<2>(all).data());
        synchronize();
        return all;
      });
      std::vector<double> wanted_gradient(s.rows * s.padded), wanted_loss(s.rows), wanted_correct(s.rows);
      for (std::size_t r = 0; r < s.real; ++r) {
        std::vector<float> own(s.classes), of_teacher(s.classes), scratch(2 * s.classes);
        for (std::size_t c = 0; c < s.classes; ++c)
          own[c] = value_of(logits[r * s.padded + c]), of_teacher[c] = value_of(taught[r * padded + c]);
        std::int32_t largest = -1;
        wanted_loss[r] = planned::kernels().distill(s.classes, targets[r], smoothing, temperature, alpha,
                                                    of_teacher.data(), scratch.data(), own.data(), &largest);
        wanted_correct[r] = largest == targets[r];
        std::ranges::copy(own, wanted_gradient.begin() + static_cast<std::ptrdiff_t>(r * s.padded));
      }
      check_near(gradient, wanted_gradient, 2e-6);
      check_near(loss, wanted_loss, 2e-6, 4);
      check_near(correct, wanted_correct, 0);
    }
}

TEST_CASE("statistics are sums over rows") {
  for (const std::size_t rows : {0, 1, 3, 100, 257, 5000}) {
    CAPTURE(rows);
    const std::vector<float> loss = random_values<float>(3, rows);
    std::vector<float> correct(rows);
    double wanted = 0, hits = 0;
    for (std::size_t r = 0; r < rows; ++r) wanted += loss[r], hits += correct[r] = r % 3 == 0;
    const auto [out] = in_all_orders([&] {
      const Memory<float> losses(loss), hits(correct);
      const Memory<std::uint32_t> real(std::vector<std::uint32_t>{12345});
      std::tuple all{Memory<float>(kStatisticsFloats, 1)};
      cuda::statistics(nullptr, rows, real.data(), losses.data(), hits.data(), std::get<0>(all).data());
      synchronize();
      return all;
    });
    CHECK(out[0] == doctest::Approx(wanted).epsilon(1e-7).scale(1));
    CHECK(out[1] == hits);
    CHECK(out[2] == 12345);
    for (std::size_t i = 3; i < kStatisticsFloats; ++i) CHECK(out[i] == 0);
  }
}

}  // namespace dtrun::cross_entropy_test
