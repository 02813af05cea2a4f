// The schedules of transformers.get_scheduler.
#include "worker/optim/learning_rate.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace dtrun::learning_rate_test {

using namespace dtrun::worker;

namespace {
double rate(SchedulerType type, std::int64_t warmup, std::int64_t step, std::int64_t total = 100) {
  TrainConfig config;
  config.learning_rate = 0.5;
  config.lr_scheduler_type = type;
  config.warmup_steps = warmup;
  return learning_rate_at(config, step, total);
}
}  // namespace

TEST_CASE("constant is constant and has no warm-up") {
  CHECK(rate(SchedulerType::kConstant, 0, 0) == 0.5);
  CHECK(rate(SchedulerType::kConstant, 10, 3) == 0.5);
}

TEST_CASE("a warm-up rises linearly from zero and reaches the rate at warmup_steps") {
  for (const SchedulerType type :
       {SchedulerType::kConstantWithWarmup, SchedulerType::kLinear, SchedulerType::kCosine}) {
    CAPTURE(type);
    CHECK(rate(type, 10, 0) == 0.0);
    CHECK(rate(type, 10, 3) == doctest::Approx(0.15));
    CHECK(rate(type, 10, 10) == 0.5);
  }
  CHECK(rate(SchedulerType::kConstantWithWarmup, 10, 99) == 0.5);
}

TEST_CASE("linear falls to zero at the end of the run and stays there") {
  CHECK(rate(SchedulerType::kLinear, 0, 0) == 0.5);
  CHECK(rate(SchedulerType::kLinear, 0, 50) == doctest::Approx(0.25));
  CHECK(rate(SchedulerType::kLinear, 20, 60) == doctest::Approx(0.25));
  CHECK(rate(SchedulerType::kLinear, 20, 100) == 0.0);
  CHECK(rate(SchedulerType::kLinear, 20, 130) == 0.0);
}

TEST_CASE("cosine falls along half a wave") {
  CHECK(rate(SchedulerType::kCosine, 0, 25) == doctest::Approx(0.5 * 0.8535533905932737));
  CHECK(rate(SchedulerType::kCosine, 20, 60) == doctest::Approx(0.25));
  CHECK(rate(SchedulerType::kCosine, 20, 100) == doctest::Approx(0.0));
}

TEST_CASE("a warm-up as long as the run divides by nothing") {
  CHECK(rate(SchedulerType::kLinear, 100, 100) == 0.0);
  CHECK(rate(SchedulerType::kCosine, 100, 100) == 0.5);
}

namespace {

constexpr double kPi = 3.14159265358979323846, kRate = 0.5;
constexpr int kTotal = 97;

// Every step of a run, and some behind its end, against a formula of transformers' optimization.py, as it is
// written there: a factor of the rate behind a linear warm-up, unless `in_memory_recovery` says that it has
// its own.
void check_schedule(TrainConfig config, SchedulerType type, int warmup,
                    const std::function<double(double step)>& factor, bool in_memory_recovery = true) {
  CAPTURE(type);
  CAPTURE(warmup);
  config.learning_rate = kRate;
  config.lr_scheduler_type = type;
  config.warmup_steps = warmup;
  for (int step = 0; step < kTotal + 9; ++step) {
    CAPTURE(step);
    const bool warming = in_memory_recovery && step < warmup;
    const double wanted = kRate * (warming ? static_cast<double>(step) / warmup : factor(step));
    const double found = learning_rate_at(config, step, kTotal);
    CHECK(std::abs(found - wanted) <= 1e-12 * std::max(std::abs(wanted), 1e-4));
  }
}

}  // namespace

TEST_CASE("every schedule has transformers' values at every step") {
  for (const int warmup : {0, 1, 13}) {
    const auto progress = [=](double step) { return (step - warmup) / std::max(1, kTotal - warmup); };
    TrainConfig config;
    SchedulerKwargs& kwargs = config.lr_scheduler_kwargs;
    check_schedule(config, SchedulerType::kLinear, warmup,
                   [&](double step) { return std::max(0.0, (kTotal - step) / (kTotal - warmup)); });
    check_schedule(config, SchedulerType::kCosine, warmup, [&](double step) {
      return std::max(0.0, 0.5 * (1.0 + std::cos(kPi * 0.5 * 2.0 * progress(step))));
    });
    check_schedule(config, SchedulerType::kCosineWithRestarts, warmup, [&](double step) {
      return progress(step) >= 1 ? 0.0 : 0.5 * (1.0 + std::cos(kPi * progress(step)));
    });
    check_schedule(config, SchedulerType::kPolynomial, warmup, [&](double step) {
      if (step > kTotal) return 1e-7 / kRate;
      const double left = 1 - (step - warmup) / (kTotal - warmup);
      return ((kRate - 1e-7) * left + 1e-7) / kRate;
    });
    check_schedule(config, SchedulerType::kInverseSqrt, warmup, [&](double step) {
      const double timescale = warmup > 0 ? warmup : 10000;
      return 1.0 / std::sqrt((step + (timescale - warmup)) / timescale);
    });

    kwargs.num_cycles = 3;
    check_schedule(config, SchedulerType::kCosine, warmup, [&](double step) {
      return std::max(0.0, 0.5 * (1.0 + std::cos(kPi * 3 * 2.0 * progress(step))));
    });
    check_schedule(config, SchedulerType::kCosineWithRestarts, warmup, [&](double step) {
      const double turns = 3 * progress(step);
      return progress(step) >= 1 ? 0.0 : 0.5 * (1.0 + std::cos(kPi * (turns - std::floor(turns))));
    });
    kwargs.num_cycles.reset();
    kwargs.lr_end = 0.02, kwargs.power = 2.5;
    check_schedule(config, SchedulerType::kPolynomial, warmup, [&](double step) {
      if (step > kTotal) return 0.02 / kRate;
      const double left = 1 - (step - warmup) / (kTotal - warmup);
      return ((kRate - 0.02) * std::pow(left, 2.5) + 0.02) / kRate;
    });
    kwargs.timescale = 40;
    check_schedule(config, SchedulerType::kInverseSqrt, warmup,
                   [&](double step) { return 1.0 / std::sqrt((step + (40.0 - warmup)) / 40.0); });
    const auto with_floor = [&](double step) {
      return 0.5 * (1.0 + std::cos(kPi * progress(step))) * (1 - 0.1) + 0.1;
    };
    kwargs.min_lr = 0.05;
    check_schedule(config, SchedulerType::kCosineWithMinLr, warmup, with_floor);
    kwargs.min_lr.reset(), kwargs.min_lr_rate = 0.1;
    check_schedule(config, SchedulerType::kCosineWithMinLr, warmup, with_floor);
  }
}

TEST_CASE("warmup_stable_decay rises, stays and falls as transformers' does, in each of its shapes") {
  constexpr double kFloor = 0.1;
  constexpr int kWarmup = 10, kDecay = 20;
  const auto shape = [](RampShape type, double progress, bool rises) {
    if (type == RampShape::kLinear) return rises ? progress : 1 - progress;
    if (type == RampShape::kCosine) return 0.5 * (1 + (rises ? -1 : 1) * std::cos(kPi * progress));
    return 1 - std::sqrt(rises ? 1 - progress : progress);
  };
  for (const RampShape rise : {RampShape::kLinear, RampShape::kCosine, RampShape::kOneMinusSqrt}) {
    for (const RampShape fall : {RampShape::kLinear, RampShape::kCosine, RampShape::kOneMinusSqrt}) {
      for (const int stable : {-1, 30}) {
        CAPTURE(rise);
        CAPTURE(fall);
        CAPTURE(stable);
        TrainConfig config;
        SchedulerKwargs& kwargs = config.lr_scheduler_kwargs;
        kwargs.num_decay_steps = kDecay, kwargs.min_lr_ratio = kFloor;
        kwargs.warmup_type = rise, kwargs.decay_type = fall;
        if (stable >= 0) kwargs.num_stable_steps = stable;
        const int fall_begin = stable >= 0 ? kWarmup + stable : kTotal - kDecay;
        check_schedule(
            config, SchedulerType::kWarmupStableDecay, kWarmup,
            [&](double step) {
              if (step < kWarmup) return shape(rise, step / kWarmup, true) * (1 - kFloor) + kFloor;
              if (step < fall_begin) return 1.0;
              if (step >= fall_begin + kDecay) return kFloor;
              return shape(fall, (step - fall_begin) / kDecay, false) * (1 - kFloor) + kFloor;
            },
            false);
      }
    }
  }
  TrainConfig defaults;
  defaults.lr_scheduler_kwargs.num_decay_steps = 40;
  check_schedule(
      defaults, SchedulerType::kWarmupStableDecay, 7,
      [&](double step) {
        if (step < 7) return step / 7;
        if (step < 57) return 1.0;
        return step < 97 ? 0.5 * (1 + std::cos(kPi * (step - 57) / 40)) : 0.0;
      },
      false);
}

TEST_CASE("a ratio warms up over its part of the run, rounded up, where no steps are given") {
  TrainConfig config;
  config.warmup_ratio = 0.1;
  CHECK(warmup_steps(config, 97) == 10);
  CHECK(warmup_steps(config, 100) == 10);
  config.warmup_steps = 3;
  CHECK(warmup_steps(config, 97) == 3);
  CHECK(warmup_steps(TrainConfig(), 97) == 0);
  config.warmup_steps = 0;
  config.learning_rate = 0.5;
  config.lr_scheduler_type = SchedulerType::kLinear;
  CHECK(learning_rate_at(config, 5, 97) == doctest::Approx(0.25));
  CHECK(learning_rate_at(config, 10, 97) == 0.5);
}

}  // namespace dtrun::learning_rate_test
