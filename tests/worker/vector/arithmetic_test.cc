// The CPU's loops against the same arithmetic written element by element: equal bits for any length and
// alignment.
#include "worker/vector/arithmetic.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "worker/base/bits_hash.h"
#include "worker/vector/loops.h"

namespace dtrun::worker::arithmetic_test {
namespace {

using Vector = std::vector<float>;

// None, one, less and more than a vector register, the chunk of a sum and its neighbours, large.
const std::vector<std::size_t> kSizes{0, 1, 3, 7, 8, 9, 16, 17, 103, 1023, 1024, 1025, 2049, 100003};

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

Vector random_vector(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> mantissa(-1, 1);
  Vector values(size);
  for (float& value : values) value = std::ldexp(mantissa(random), static_cast<int>(random() % 24) - 12);
  return values;
}

// The tests' own loops. -O0 and one statement per operation: nothing is contracted or reordered.
float plus(float a, float b) { return a + b; }
float times(float a, float b) { return a * b; }

double plain_norm(const Vector& values) {
  double sums[32] = {}, piece[32] = {};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double square = static_cast<double>(values[i]) * static_cast<double>(values[i]);
    piece[i % 32] += square;
    if (i % 65536 != 65535 && i + 1 != values.size()) continue;
    for (int k = 0; k < 32; ++k) sums[k] += std::exchange(piece[k], 0.0);
  }
  double total = 0;
  for (const double sum : sums) total += sum;
  return std::sqrt(total);
}

struct Step {
  explicit Step(std::size_t size)
      : sum(kStatisticsFloats), parameters(random_vector(size, 2)), a(random_vector(size, 3)) {
    for (const float value : random_vector(size, 4)) b.push_back(std::abs(value));
    sum[0] = 12.5f, sum[1] = 3, sum[2] = 7;
    const Vector gradient = random_vector(size, 1);
    sum.insert(sum.end(), gradient.begin(), gradient.end());
  }
  Vector mean() const {
    Vector mean(sum.begin() + kStatisticsFloats, sum.end());
    for (float& value : mean) value = value / sum[2];
    return mean;
  }
  StepResult update(const UpdateRule& rule, int slots, std::span<const VectorRange> decaying = {},
                    std::size_t running = 0, std::span<const RunningStatistics> statistics = {}) {
    const auto cpu = make_cpu_arithmetic();
    UpdatedVectors vectors{.size = parameters.size(),
                           .parameters = parameters.data(),
                           .slots = {},
                           .decaying = decaying,
                           .running = running,
                           .statistics = statistics};
    if (slots > 0) vectors.slots.push_back(a.data());
    if (slots > 1) vectors.slots.push_back(b.data());
    return cpu->update(*cpu->make_stream(), rule, sum.data(), vectors, parallel);
  }
  Vector sum, parameters, a, b;
  Parallel parallel;
};

TEST_CASE("the loops for every instruction set that this processor has give the same bits") {
  const InstructionSets<vector::Loops> found = vector::available_loops();
  const vector::Loops& plain = *found.sets[found.count - 1];
  CHECK(plain.instruction_set == std::string("baseline"));
  const AdamWRule adamw{.keep = 0.99f,
                        .step_size = 0.01f,
                        .root_correction = 0.7f,
                        .beta1 = 0.9f,
                        .rest1 = 0.1f,
                        .beta2 = 0.99f,
                        .rest2 = 0.01f,
                        .epsilon = 1e-8f};
  for (int each = 0; each < found.count - 1; ++each) {
    const vector::Loops& loops = *found.sets[each];
    CAPTURE(loops.instruction_set);
    for (const std::size_t size : kSizes) {
      CAPTURE(size);
      const auto outcome = [&](const vector::Loops& of) {
        const Vector x = random_vector(size, 1), y = random_vector(size, 2);
        Vector all(10 * size);
        const auto part = [&](std::size_t index) { return all.data() + index * size; };
        std::ranges::copy(random_vector(all.size(), 3), all.begin());
        for (std::size_t i = 7 * size; i < 8 * size; ++i) all[i] = std::abs(all[i]);
        of.add(x.data(), y.data(), part(0), size);
        of.scale(x.data(), 0.3f, part(1), size);
        of.divide(y.data(), 7, part(2), size);
        of.sgd({.rate = 0.1f, .weight_decay = 0.01f}, x.data(), part(3), size);
        const SgdRule momentum{
            .rate = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f, .nesterov = size % 2 == 0};
        of.sgd_momentum(momentum, x.data(), part(3), part(4), size);
        of.adamw(adamw, adamw.keep, x.data(), part(5), part(6), part(7), size);
        Vector mean = y;
        of.outer({.rate = 0.7f, .momentum = 0.9f}, mean.data(), part(8), part(9), size);
        of.outer({.rate = 0.7f}, mean.data(), part(8), nullptr, size);
        double squares[vector::kSquareSums] = {1, 2, 3, 4, 5, 6, 7, 8};
        of.add_squares(y.data(), size, squares);
        for (const double square : squares) all.push_back(std::bit_cast<std::array<float, 2>>(square)[0]);
        return all;
      };
      CHECK(same_bits(outcome(loops), outcome(plain)));
    }
  }
}

TEST_CASE("the mean of a power of two of targets has the bits of the division") {
  for (const float targets : {1.0f, 2.0f, 256.0f, 0x1p40f, 3.0f, 255.0f}) {
    Step step(1025);
    step.sum[2] = targets;
    step.sum[kStatisticsFloats] = 0x1.8p-126f;  // the result is no normal number
    const Vector wanted = step.mean();
    const Vector before = step.parameters;
    step.update({.optimizer = SgdRule{.rate = 1}}, 0);
    for (std::size_t i = 0; i < wanted.size(); ++i) REQUIRE(step.parameters[i] == before[i] - wanted[i]);
  }
}

TEST_CASE("an outer step is Nesterov's SGD from where replicas began towards their mean") {
  const std::size_t size = 1025, running = 16;
  const auto cpu = make_cpu_arithmetic();
  for (const float replicas : {3.0f, 4.0f}) {
    for (const float momentum : {0.0f, 0.5f}) {
      Step step(size);
      Vector mean(step.sum.begin() + kStatisticsFloats, step.sum.end());
      for (float& value : mean) value = value / replicas;
      const Vector before = step.parameters, buffer = step.a;
      UpdatedVectors vectors{
          .size = size, .parameters = step.parameters.data(), .slots = {}, .running = running};
      if (momentum > 0) vectors.slots.push_back(step.a.data());
      const OuterRule rule{.rate = 0.7f, .momentum = momentum, .replicas = replicas};
      const StepResult result = cpu->outer_update(*cpu->make_stream(), rule, step.sum.data(), vectors, {});
      CHECK(result.stats.loss == 12.5);
      CHECK(result.stats.targets == 7);
      CHECK(same_bits(std::span(step.parameters).first(running), std::span(mean).first(running)));
      Vector gradient;
      for (std::size_t i = running; i < size; ++i) {
        CAPTURE(i);
        const double g = double{before[i]} - double{mean[i]}, b = double{buffer[i]} * momentum + g;
        const double wanted = before[i] - 0.7 * (momentum > 0 ? g + momentum * b : g);
        const double scale = std::abs(before[i]) + std::abs(mean[i]) + std::abs(buffer[i]);
        REQUIRE(std::abs(step.parameters[i] - wanted) <= 1e-6 * scale);
        gradient.push_back(before[i] - mean[i]);
      }
      CHECK(result.norm == plain_norm(gradient));
    }
  }
}

TEST_CASE(
    "with a rate of 1 and without momentum an outer step is the mean, and of one replica that replica") {
  Step step(1025);
  step.sum[kStatisticsFloats] = -0.0f;
  const Vector replica(step.sum.begin() + kStatisticsFloats, step.sum.end());
  const UpdatedVectors vectors{.size = replica.size(), .parameters = step.parameters.data(), .slots = {}};
  const auto cpu = make_cpu_arithmetic();
  cpu->outer_update(*cpu->make_stream(), {}, step.sum.data(), vectors, {});
  CHECK(same_bits(step.parameters, replica));
}

TEST_CASE("memory is zero at first and aligned, on both sides, and so is none") {
  const auto cpu = make_cpu_arithmetic();
  for (const Where where : {Where::kDevice, Where::kHost}) {
    for (const std::size_t size : kSizes) {
      const Buffer buffer = cpu->allocate(where, size);
      CHECK(buffer.size() == size);
      CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64 == 0);
      CHECK(same_bits({buffer.data(), size}, Vector(size)));
    }
  }
  CHECK(cpu->device_is_host());
}

TEST_CASE("copies and additions of every length, also from odd addresses, touch nothing else") {
  const auto cpu = make_cpu_arithmetic();
  const auto stream = cpu->make_stream();
  for (const std::size_t size : kSizes) {
    for (const std::size_t shift : {0, 1, 5}) {
      CAPTURE(size);
      CAPTURE(shift);
      const Vector left = random_vector(size, 1), right = random_vector(size, 2);
      Vector wanted(size + shift + 1, 7.0f), values = wanted;
      std::ranges::copy(left, wanted.begin() + static_cast<std::ptrdiff_t>(shift));
      cpu->copy(*stream, values.data() + shift, left.data(), size);
      CHECK(same_bits(values, wanted));
      for (std::size_t i = 0; i < size; ++i) wanted[shift + i] = plus(left[i], right[i]);
      cpu->accumulate(*stream, values.data() + shift, right.data(), size);
      CHECK(same_bits(values, wanted));
    }
  }
}

TEST_CASE("a list of additions gives the bits of the same additions of whole vectors") {
  const auto cpu = make_cpu_arithmetic();
  // ((0+1)+2)+(3+4), and the only input.
  const TreeSum five{
      .inputs = 5, .temporaries = 2, .additions = {{0, 1, 5}, {5, 2, 5}, {3, 4, 6}, {5, 6, 5}}};
  const TreeSum one{.inputs = 1, .temporaries = 0, .additions = {}};
  for (const std::size_t size : kSizes) {
    CAPTURE(size);
    std::vector<Vector> vectors;
    std::vector<const float*> inputs;
    for (unsigned i = 0; i < 5; ++i) vectors.push_back(random_vector(size, i));
    for (const Vector& vector : vectors) inputs.push_back(vector.data());
    Vector wanted(size), total(size, NAN);
    for (std::size_t i = 0; i < size; ++i) {
      const float left = plus(plus(vectors[0][i], vectors[1][i]), vectors[2][i]);
      wanted[i] = plus(left, plus(vectors[3][i], vectors[4][i]));
    }
    cpu->sum(*cpu->make_stream(), five, inputs, total.data(), size);
    CHECK(same_bits(total, wanted));
    cpu->sum(*cpu->make_stream(), one, inputs, total.data(), size);
    CHECK(same_bits(total, vectors[0]));
  }
}

TEST_CASE("a step's statistics come out as they are; its norm is that of the mean, if somebody needs it") {
  for (const std::size_t size : kSizes) {
    CAPTURE(size);
    const double norm = plain_norm(Step(size).mean());
    Step quiet(size), asked(size), clipped(size);
    const StepResult result = quiet.update({.optimizer = SgdRule{}}, 0);
    CHECK(result.stats.loss == 12.5);
    CHECK(result.stats.correct == 3);
    CHECK(result.stats.targets == 7);
    CHECK(result.norm == 0);
    CHECK(asked.update({.optimizer = SgdRule{}, .norm_wanted = true}, 0).norm == norm);
    CHECK(clipped.update({.optimizer = SgdRule{}, .max_norm = norm / 2}, 0).norm == norm);
  }
}

TEST_CASE("the norm is summed in fp64") {
  const auto norm = [](const Vector& gradient) {
    Step step(0);
    step.sum[2] = 1;
    step.sum.insert(step.sum.end(), gradient.begin(), gradient.end());
    step.parameters.resize(gradient.size());
    return step.update({.optimizer = SgdRule{}, .norm_wanted = true}, 0).norm;
  };
  CHECK(norm({3, -4}) == 5);
  Vector values(1003, 1e-3f);
  values[1002] = 1e15f;
  CHECK(norm(values) == doctest::Approx(1e15).epsilon(1e-7));
  CHECK(norm(Vector(1000003, 1.0f)) == doctest::Approx(std::sqrt(1000003.0)).epsilon(1e-12));
}

TEST_CASE("SGD, with and without momentum, is PyTorch's formula rounded after each operation") {
  SgdRule rule{.rate = 0.05f, .momentum = 0.9f, .weight_decay = 0.01f};
  for (const std::size_t size : kSizes) {
    CAPTURE(size);
    Step plain(size), momentum(size), ahead(size);
    const Vector mean = plain.mean();
    Vector without = plain.parameters, with = plain.parameters, nesterov = with, buffer = plain.a;
    for (std::size_t i = 0; i < size; ++i) {
      const float gradient = plus(mean[i], times(rule.weight_decay, without[i]));
      without[i] = plus(without[i], -times(rule.rate, gradient));
      buffer[i] = plus(times(buffer[i], rule.momentum), gradient);
      with[i] = plus(with[i], -times(rule.rate, buffer[i]));
      nesterov[i] = plus(nesterov[i], -times(rule.rate, plus(gradient, times(rule.momentum, buffer[i]))));
    }
    plain.update({.optimizer = rule}, 0);
    CHECK(same_bits(plain.parameters, without));
    momentum.update({.optimizer = rule}, 1);
    CHECK(same_bits(momentum.parameters, with));
    CHECK(same_bits(momentum.a, buffer));
    rule.nesterov = true;
    ahead.update({.optimizer = rule}, 1);
    CHECK(same_bits(ahead.parameters, nesterov));
    CHECK(same_bits(ahead.a, buffer));
    rule.nesterov = false;
  }
}

TEST_CASE("AdamW is PyTorch's formula rounded after each operation, and decays what it is told to") {
  const AdamWRule rule{.keep = 0.999f,
                       .step_size = 0.01f,
                       .root_correction = 0.3f,
                       .beta1 = 0.9f,
                       .rest1 = 0.1f,
                       .beta2 = 0.999f,
                       .rest2 = 0.001f,
                       .epsilon = 1e-8f};
  for (const std::size_t size : kSizes) {
    CAPTURE(size);
    Step step(size);
    // None, all, from the front, up to the end, and two pieces in the middle.
    const std::vector<std::vector<VectorRange>> kinds{{},
                                                      {{0, size}},
                                                      {{0, size / 3}},
                                                      {{size / 3, size}},
                                                      {{size / 4, size / 3}, {size / 2, size - size / 8}}};
    for (const std::vector<VectorRange>& decaying : kinds) {
      step = Step(size);
      const Vector gradient = step.mean();
      Vector parameters = step.parameters, mean = step.a, square = step.b;
      for (std::size_t i = 0; i < size; ++i) {
        const float g = gradient[i];
        mean[i] = plus(times(mean[i], rule.beta1), times(rule.rest1, g));
        square[i] = plus(times(square[i], rule.beta2), times(times(rule.rest2, g), g));
        const float root = std::sqrt(square[i]) / rule.root_correction;
        const float ratio = mean[i] / plus(root, rule.epsilon);
        const bool decays = std::ranges::any_of(
            decaying, [&](const VectorRange& range) { return range.begin <= i && i < range.end; });
        parameters[i] = plus(times(parameters[i], decays ? rule.keep : 1), -times(rule.step_size, ratio));
      }
      step.update({.optimizer = rule}, 2, decaying);
      CHECK(same_bits(step.parameters, parameters));
      CHECK(same_bits(step.a, mean));
      CHECK(same_bits(step.b, square));
    }
  }
}

TEST_CASE("an update has the same bits on any number of threads") {
  const std::size_t size = 5 * 65536 + 12345;
  const std::vector<VectorRange> decaying{{16, 100000}, {100001, 200000}, {300000, size - 1}};
  const RunningStatistics running{.begin = 0, .channels = 8, .values = 4, .momentum = 0.1f};
  const std::vector<UpdateRule> rules{
      {.optimizer = SgdRule{.rate = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f, .decays_all = false},
       .norm_wanted = true},
      {.optimizer =
           AdamWRule{.keep = 0.99f, .step_size = 0.1f, .rest1 = 0.1f, .rest2 = 0.01f, .epsilon = 1e-8f},
       .max_norm = 1}};
  for (const UpdateRule& rule : rules) {
    Step alone(size);
    const double norm = alone.update(rule, 2, decaying, 16, {&running, 1}).norm;
    for (const int threads : {1, 2, 3, 4, 7, 16}) {
      CAPTURE(threads);
      Step step(size);
      step.parallel = [&](const auto& work) {
        std::vector<std::jthread> team;
        for (int index = 0; index < threads; ++index) team.emplace_back([&, index] { work(index, threads); });
      };
      CHECK(step.update(rule, 2, decaying, 16, {&running, 1}).norm == norm);
      CHECK(same_bits(step.parameters, alone.parameters));
      CHECK(same_bits(step.a, alone.a));
      CHECK(same_bits(step.b, alone.b));
    }
  }
}

TEST_CASE("a step whose loss or gradient is not finite is not made if it must be, and leaves the mean") {
  for (const std::size_t at : {std::size_t{0}, kStatisticsFloats, kStatisticsFloats + 102}) {
    for (const float value : {NAN, INFINITY, -INFINITY}) {
      CAPTURE(at);
      CAPTURE(value);
      Step step(103), careless(103);
      step.sum[at] = careless.sum[at] = value;
      const Vector parameters = step.parameters, buffer = step.a, mean = step.mean();
      const SgdRule rule{.rate = 0.5f, .momentum = 0.9f};
      CHECK_FALSE(step.update({.optimizer = rule, .max_norm = 1, .finite_only = true}, 1).applied);
      CHECK(same_bits(step.parameters, parameters));
      CHECK(same_bits(step.a, buffer));
      CHECK(same_bits(std::span(step.sum).subspan(kStatisticsFloats), mean));
      CHECK(careless.update({.optimizer = rule}, 1).applied);
      CHECK_FALSE(same_bits(careless.parameters, parameters));
    }
  }
  // The largest numbers are finite, and so is their norm.
  Step large(103);
  std::fill(large.sum.begin() + kStatisticsFloats, large.sum.end(), std::numeric_limits<float>::max());
  CHECK(large.update({.optimizer = SgdRule{}, .finite_only = true}, 0).applied);
}

TEST_CASE("SGD's weight decay may be of some elements alone") {
  const std::vector<VectorRange> decaying{{3, 20}, {50, 103}};
  for (const int slots : {0, 1}) {
    SgdRule rule{.rate = 0.5f, .momentum = slots * 0.9f, .weight_decay = 0.1f};
    Step all(103), some(103), none(103);
    all.update({.optimizer = rule}, slots);
    rule.decays_all = false;
    some.update({.optimizer = rule}, slots, decaying);
    rule.weight_decay = 0;
    none.update({.optimizer = rule}, slots);
    for (std::size_t i = 0; i < 103; ++i) {
      const bool decays = (i >= 3 && i < 20) || i >= 50;
      CHECK(some.parameters[i] == (decays ? all : none).parameters[i]);
      CHECK(some.a[i] == (decays ? all : none).a[i]);
    }
    CHECK_FALSE(same_bits(all.parameters, none.parameters));
  }
}

TEST_CASE("running statistics follow those of the step's values, and neither norm nor optimizer knows them") {
  // 7 targets of 3 values a channel, two channels; c is the running mean.
  const std::size_t running = 4;
  Step step(103), without(103);
  const Vector before{0.5f, -2, 3, 0.25f}, shifts{0.25f, 8}, squares{4, 0.5f};
  std::ranges::copy(before, step.parameters.begin());
  for (int i = 0; i < 2; ++i) {
    step.sum[kStatisticsFloats + i] = 7 * shifts[i];
    step.sum[kStatisticsFloats + 2 + i] = 7 * (squares[i] + shifts[i] * shifts[i]);
  }
  const std::vector<RunningStatistics> statistics{{.begin = 0, .channels = 2, .values = 3, .momentum = 0.1f}};
  const UpdateRule rule{.optimizer = SgdRule{.rate = 0.5f, .momentum = 0.9f, .weight_decay = 0.1f},
                        .max_norm = 1};
  const Vector buffer = step.a;
  CHECK(step.update(rule, 1, {}, running, statistics).norm == without.update(rule, 1, {}, running).norm);
  for (int i = 0; i < 2; ++i) {
    CHECK(step.parameters[i] == doctest::Approx(before[i] + 0.1f * shifts[i]));
    CHECK(step.parameters[2 + i] ==
          doctest::Approx(0.9f * before[2 + i] + 0.1f * squares[i] * 21 / 20).epsilon(1e-5));
  }
  CHECK(same_bits(std::span(step.a).first(running), std::span(buffer).first(running)));
  CHECK(
      same_bits(std::span(step.parameters).subspan(running), std::span(without.parameters).subspan(running)));
  // A step that is not made changes them as little as the others.
  Step refused(103);
  refused.sum[kStatisticsFloats + 50] = NAN;
  const Vector parameters = refused.parameters;
  CHECK_FALSE(
      refused.update({.optimizer = SgdRule{.rate = 1}, .finite_only = true}, 0, {}, running, statistics)
          .applied);
  CHECK(same_bits(refused.parameters, parameters));
}

TEST_CASE("a hash tells any two vectors apart that differ in one bit, wherever") {
  for (const std::size_t size : kSizes) {
    const Vector values = random_vector(size, 1);
    CHECK(bits_hash(values) == bits_hash(Vector(values)));
    for (std::size_t i = 0; i < size; i += 1 + size / 50) {
      for (const int bit : {0, 13, 31}) {
        Vector other = values;
        other[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(other[i]) ^ 1u << bit);
        CHECK(bits_hash(other) != bits_hash(values));
      }
    }
  }
  CHECK(bits_hash(Vector{0.0f}) != bits_hash(Vector{-0.0f}));
  CHECK(bits_hash(Vector{1, 2}) != bits_hash(Vector{2, 1}));
  // Bytes are words, too, the last one filled up.
  const std::vector<std::uint8_t> bytes{0, 0, 0x80, 0x3f, 7, 8};
  CHECK(bits_hash(std::span(bytes).first(4)) == bits_hash(Vector{1}));
  CHECK(bits_hash(std::span(bytes)) != bits_hash(std::span(bytes).first(5)));
}

TEST_CASE("a gradient longer than the limit is shortened to it, a shorter one stays as it is") {
  constexpr std::size_t kSize = 1003;
  const Vector mean = Step(kSize).mean();
  const double norm = plain_norm(mean);
  for (const double limit : {norm / 3, norm * 3}) {
    CAPTURE(limit);
    Step step(kSize);
    const auto factor = static_cast<float>(std::min(1.0, limit / (norm + 1e-6)));
    Vector wanted = step.parameters;
    for (std::size_t i = 0; i < kSize; ++i) wanted[i] = plus(wanted[i], -times(0.5f, times(mean[i], factor)));
    step.update({.optimizer = SgdRule{.rate = 0.5f}, .max_norm = limit}, 0);
    CHECK(same_bits(step.parameters, wanted));
  }
}

}  // namespace
}  // namespace dtrun::worker::arithmetic_test
