// Whole vectors on the stand-in for a GPU, and on one, against the CPU's: equal bits, but for the order in
// which a norm is summed.
#include "worker/device/cuda/arithmetic.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "worker/base/error.h"

namespace dtrun::worker::cuda::arithmetic_test {
namespace {

using Vector = std::vector<float>;

const std::vector<std::size_t> kSizes{0, 1, 3, 17, 103, 1025, 20011};

Vector random_vector(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> mantissa(-1, 1);
  Vector values(size);
  for (float& value : values) value = std::ldexp(mantissa(random), static_cast<int>(random() % 24) - 12);
  return values;
}

bool same_bits(const Vector& a, const Vector& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// A vector on a device, with the stream on which this test works.
struct There {
  Buffer put(const Vector& values) const {
    Buffer buffer = arithmetic.allocate(Where::kDevice, values.size());
    arithmetic.copy(*stream, buffer.data(), values.data(), values.size());
    stream->wait();
    return buffer;
  }
  Vector get(const float* from, std::size_t size) const {
    Vector values(size);
    arithmetic.copy(*stream, values.data(), from, size);
    stream->wait();
    return values;
  }
  Vector get(const Buffer& buffer) const { return get(buffer.data(), buffer.size()); }

  Arithmetic& arithmetic;
  std::unique_ptr<Stream> stream = arithmetic.make_stream();
};

TEST_CASE("memory that a GPU can spare leaves it some") {
  CudaArithmetic gpu(0);
  std::size_t free = 0, total = 0;
  REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
  CHECK(gpu.spare(1 << 18));
  CHECK_FALSE(gpu.spare((free - total / 40) / sizeof(float)));
  CHECK(gpu.used() == 0);
}

TEST_CASE("memory of the host is pinned for as long as it is asked for, and once") {
  CudaArithmetic gpu(0);
  const There there{gpu};
  Vector host = random_vector(1 << 18, 1);
  {
    const Buffer pin = gpu.pin(host);
    REQUIRE(pin);
    CHECK(pin.data() == host.data());
    CHECK_FALSE(gpu.pin(host));
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(same_bits(there.get(there.put(host)), host));
  }
  CHECK(gpu.pin(host));
}

TEST_CASE("memory is zero at first and aligned; what the host puts there comes back") {
  CudaArithmetic gpu(0);
  const There there{gpu};
  CHECK_FALSE(gpu.device_is_host());
  for (const std::size_t size : kSizes) {
    const Buffer buffer = gpu.allocate(Where::kDevice, size), host = gpu.allocate(Where::kHost, size);
    CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256 == 0);
    CHECK(same_bits(there.get(buffer), Vector(size)));
    CHECK(same_bits({host.data(), host.data() + size}, Vector(size)));
    const Vector values = random_vector(size, 1);
    CHECK(same_bits(there.get(there.put(values)), values));
  }
}

TEST_CASE("additions and sums have the CPU's bits") {
  CudaArithmetic gpu(0);
  const There there{gpu};
  const auto cpu = make_cpu_arithmetic();
  const auto cpu_stream = cpu->make_stream();
  for (const std::size_t size : kSizes) {
    CAPTURE(size);
    Vector left = random_vector(size, 1);
    const Vector right = random_vector(size, 2);
    const Buffer left_there = there.put(left), right_there = there.put(right);
    gpu.accumulate(*there.stream, left_there.data(), right_there.data(), size);
    cpu->accumulate(*cpu_stream, left.data(), right.data(), size);
    CHECK(same_bits(there.get(left_there), left));
    for (const std::int64_t leaves : {1, 2, 5, 8, 13, 64}) {
      CAPTURE(leaves);
      std::vector<Block> blocks;
      for (std::int64_t leaf = 0; leaf < leaves; ++leaf) blocks.push_back({.begin = leaf, .level = 0});
      const TreeSum sum = plan_sum(blocks, leaves);
      std::vector<Vector> inputs;
      std::vector<Buffer> inputs_there;
      std::vector<const float*> pointers, pointers_there;
      for (int i = 0; i < sum.inputs; ++i) {
        inputs.push_back(random_vector(size, static_cast<unsigned>(i)));
        inputs_there.push_back(there.put(inputs.back()));
        pointers_there.push_back(inputs_there.back().data());
      }
      for (const Vector& input : inputs) pointers.push_back(input.data());
      Vector total(size);
      cpu->sum(*cpu_stream, sum, pointers, total.data(), size);
      const Buffer total_there = gpu.allocate(Where::kDevice, size);
      gpu.sum(*there.stream, sum, pointers_there, total_there.data(), size);
      CHECK(same_bits(there.get(total_there), total));
    }
  }
}

struct State {
  explicit State(std::size_t size)
      : sum(kStatisticsFloats), parameters(random_vector(size, 2)), a(random_vector(size, 3)) {
    for (const float value : random_vector(size, 4)) b.push_back(std::abs(value));
    sum[0] = 12.5f, sum[1] = 3, sum[2] = 7;
    const Vector gradient = random_vector(size, 1);
    sum.insert(sum.end(), gradient.begin(), gradient.end());
  }
  Vector sum, parameters, a, b;
};

StepResult update(const There& there, const UpdateRule& rule, std::span<const VectorRange> decaying,
                  State& state, std::size_t running = 0, std::span<const RunningStatistics> statistics = {}) {
  const Buffer sum = there.put(state.sum), parameters = there.put(state.parameters), a = there.put(state.a),
               b = there.put(state.b);
  UpdatedVectors vectors{.size = state.parameters.size(),
                         .parameters = parameters.data(),
                         .slots = {},
                         .decaying = decaying,
                         .running = running,
                         .statistics = statistics};
  const auto* const sgd = std::get_if<SgdRule>(&rule.optimizer);
  if (sgd == nullptr || sgd->momentum != 0) vectors.slots.push_back(a.data());
  if (sgd == nullptr) vectors.slots.push_back(b.data());
  const StepResult result = there.arithmetic.update(*there.stream, rule, sum.data(), vectors, {});
  state = State(0);
  state.sum = there.get(sum), state.parameters = there.get(parameters);
  state.a = there.get(a), state.b = there.get(b);
  return result;
}

std::vector<UpdateRule> rules() {
  const AdamWRule adamw{.keep = 0.999f,
                        .step_size = 0.01f,
                        .root_correction = 0.3f,
                        .beta1 = 0.9f,
                        .rest1 = 0.1f,
                        .beta2 = 0.999f,
                        .rest2 = 0.001f,
                        .epsilon = 1e-8f};
  const SgdRule momentum{.rate = 0.05f, .momentum = 0.9f, .weight_decay = 0.01f};
  SgdRule nesterov = momentum;
  nesterov.nesterov = true;
  std::vector<UpdateRule> found;
  found.push_back({.optimizer = SgdRule{.rate = 0.05f, .weight_decay = 0.01f}});
  found.push_back({.optimizer = momentum});
  found.push_back({.optimizer = nesterov, .max_norm = 0.5});
  for (SgdRule rule : {SgdRule{.rate = 0.05f, .weight_decay = 0.01f}, momentum}) {
    rule.decays_all = false;
    found.push_back({.optimizer = rule});
  }
  found.push_back({.optimizer = adamw, .norm_wanted = true});
  found.push_back({.optimizer = adamw, .max_norm = 1e-3, .finite_only = true});
  return found;
}

TEST_CASE("an update has the CPU's bits, and its norm but for the order of the sum") {
  CudaArithmetic gpu(0);
  const auto cpu = make_cpu_arithmetic();
  const There there{gpu}, here{*cpu};
  for (const UpdateRule& rule : rules()) {
    for (const std::size_t size : kSizes) {
      CAPTURE(size);
      const std::vector<VectorRange> decaying{{size / 4, size / 3}, {size / 2, size - size / 8}};
      State one(size), other(size);
      const StepResult on_gpu = update(there, rule, decaying, one),
                       on_cpu = update(here, rule, decaying, other);
      CHECK(on_gpu.applied);
      CHECK(on_gpu.stats.loss == on_cpu.stats.loss);
      CHECK(on_gpu.stats.correct == on_cpu.stats.correct);
      CHECK(on_gpu.stats.targets == on_cpu.stats.targets);
      CHECK(on_gpu.norm == doctest::Approx(on_cpu.norm).epsilon(1e-12));
      CHECK(same_bits(one.parameters, other.parameters));
      CHECK(same_bits(one.a, other.a));
      CHECK(same_bits(one.b, other.b));
    }
  }
}

TEST_CASE(
    "running statistics in front of the parameters have the CPU's bits, and so has what is behind them") {
  CudaArithmetic gpu(0);
  const auto cpu = make_cpu_arithmetic();
  const There there{gpu}, here{*cpu};
  const std::vector<RunningStatistics> statistics{
      {.begin = 0, .channels = 3, .values = 64, .momentum = 0.1f},
      {.begin = 6, .channels = 300, .values = 1, .momentum = 0.3f}};
  constexpr std::size_t kRunning = 606;
  const std::vector<VectorRange> decaying{{700, 900}};
  for (const UpdateRule& rule : rules()) {
    State one(1003), other(1003);
    const StepResult on_gpu = update(there, rule, decaying, one, kRunning, statistics),
                     on_cpu = update(here, rule, decaying, other, kRunning, statistics);
    CHECK(on_gpu.norm == doctest::Approx(on_cpu.norm).epsilon(1e-12));
    CHECK(same_bits(one.parameters, other.parameters));
    CHECK_FALSE(same_bits(one.parameters, State(1003).parameters));
    CHECK(same_bits(one.a, other.a));
    CHECK(same_bits(one.b, other.b));
  }
}

TEST_CASE("a step that is not finite is not made if it must be, and leaves the mean") {
  CudaArithmetic gpu(0);
  const There there{gpu};
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    State state(103);
    state.sum[kStatisticsFloats + 51] = value;
    const State before = state;
    CHECK_FALSE(update(there, {.optimizer = AdamWRule{}, .finite_only = true}, {}, state).applied);
    CHECK(same_bits(state.parameters, before.parameters));
    CHECK(same_bits(state.a, before.a));
    CHECK(same_bits(state.b, before.b));
    CHECK(state.sum[kStatisticsFloats] == before.sum[kStatisticsFloats] / before.sum[2]);
  }
}

Vector as_floats(const There& there, const __nv_bfloat16* from, std::size_t size) {
  const Vector raw = there.get(reinterpret_cast<const float*>(from), (size + 1) / 2);
  std::vector<std::uint16_t> halves(2 * raw.size());
  std::memcpy(halves.data(), raw.data(), raw.size() * sizeof(float));
  Vector values;
  for (std::size_t i = 0; i < size; ++i)
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(halves[i]) << 16));
  return values;
}

bool is_rounded(const Vector& rounded, const Vector& exact) {
  for (std::size_t i = 0; i < exact.size(); ++i)
    if (!(std::abs(rounded[i] - exact[i]) <= std::abs(exact[i]) * 0x1p-8f)) return false;
  return rounded.size() == exact.size();
}

TEST_CASE("the copy in bf16 is that of the newest values, whoever wrote them") {
  constexpr std::size_t kSize = 1000;
  CudaArithmetic gpu(0);
  const There there{gpu};
  const Vector first = random_vector(kSize, 1), second = random_vector(kSize, 2);
  const Buffer parameters = there.put(first);
  const auto stream = gpu.make_stream();
  const auto copy = [&] {
    return as_floats(there, gpu.rounded(parameters.data(), kSize, *there.stream), kSize);
  };
  CHECK(is_rounded(copy(), first));
  gpu.copy(*there.stream, parameters.data(), second.data(), kSize);
  CHECK(is_rounded(copy(), second));
  // An update writes both.
  State state(kSize);
  const Buffer sum = there.put(state.sum);
  gpu.update(*stream, {.optimizer = SgdRule{.rate = 0.5f}}, sum.data(),
             {.size = kSize, .parameters = parameters.data(), .slots = {}, .decaying = {}}, {});
  const Vector updated = there.get(parameters);
  CHECK_FALSE(same_bits(updated, second));
  CHECK(is_rounded(copy(), updated));
  // A part that is overwritten.
  gpu.copy(*there.stream, parameters.data() + 500, first.data(), 1);
  Vector changed = updated;
  changed[500] = first[0];
  CHECK(is_rounded(copy(), changed));
}

TEST_CASE("a sum of more parts than one launch takes is refused") {
  CudaArithmetic gpu(0);
  const There there{gpu};
  std::vector<Block> blocks;
  for (int leaf = 0; leaf < 300; ++leaf) blocks.push_back({leaf, 0});
  const Buffer part = there.put(Vector(4, 1));
  const std::vector<const float*> inputs(blocks.size(), part.data());
  const Buffer total = there.put(Vector(4, 0));
  CHECK_THROWS_AS(there.arithmetic.sum(*there.stream, plan_sum(blocks, 300), inputs, total.data(), 4),
                  WorkerError);
}

}  // namespace
}  // namespace dtrun::worker::cuda::arithmetic_test
