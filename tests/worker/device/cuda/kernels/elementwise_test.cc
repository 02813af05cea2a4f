// Operations on each element alone, against their definitions and the CPU's loops, at sizes that fit no
// vector.
#include "worker/device/cuda/kernels/elementwise.h"

#include "tests/worker/device/cuda/kernels/run.h"
#include "worker/core/dropout.h"
#include "worker/device/cpu/planned/kernels.h"

namespace dtrun::elementwise_test {

using namespace dtrun::worker;
using namespace dtrun::worker::cuda::testing;

namespace {

constexpr std::size_t kCounts[] = {1, 3, 7, 64, 100, 257, 5000};

double gelu_of(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
  const double tanh = std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  const double inner = std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
  return 0.5 * (1 + tanh) + 0.5 * x * (1 - tanh * tanh) * inner;
}

// op(stream, count, …, add, out) of in_all_orders(), onto `old` if it adds.
template <typename T, typename Op>
Memory<T> result(std::size_t count, std::size_t shift, bool add, const std::vector<T>& old, const Op& op) {
  return std::get<0>(in_all_orders([&] {
    Memory<T> out(count, shift);
    if (add) out = Memory<T>(old, shift);
    op(out.data());
    synchronize();
    return std::tuple(out);
  }));
}

}  // namespace

TEST_CASE_TEMPLATE("ReLU, GELU and their gradients, written and added, on 16 bytes and off them", T,
                   DTRUN_ACTIVATIONS) {
  for (const std::size_t count : kCounts)
    for (const std::size_t shift : {0, 1, 2})
      for (const bool add : {false, true}) {
        CAPTURE(count);
        CAPTURE(shift);
        CAPTURE(add);
        const std::vector<T> x = random_values<T>(1, count, 2), d = random_values<T>(2, count),
                             old = random_values<T>(3, count);
        const Memory<T> in(x, shift), gradient(d, shift);
        const auto wanted = [&](const auto& of) {
          std::vector<double> all(count);
          for (std::size_t i = 0; i < count; ++i) all[i] = (add ? value_of(old[i]) : 0.0) + of(i);
          return all;
        };
        const Memory<T> relu_gradient = result(count, shift, add, old, [&](T* out) {
          cuda::relu_backward<T>(nullptr, count, in.data(), gradient.data(), add, out);
        });
        check_near(relu_gradient, wanted([&](std::size_t i) { return in[i] > 0 ? gradient[i] : 0.0; }), 1e-7);
        const Memory<T> gelu_gradient = result(count, shift, add, old, [&](T* out) {
          cuda::gelu_backward<T>(nullptr, count, in.data(), gradient.data(), add, out);
        });
        check_near(gelu_gradient, wanted([&](std::size_t i) { return gradient[i] * gelu_slope(in[i]); }),
                   1e-6);
        if (add) continue;
        const Memory<T> relu =
            result(count, shift, false, old, [&](T* out) { cuda::relu<T>(nullptr, count, in.data(), out); });
        for (std::size_t i = 0; i < count; ++i) CHECK(relu[i] == std::max(in[i], 0.0f));
        const Memory<T> gelu =
            result(count, shift, false, old, [&](T* out) { cuda::gelu<T>(nullptr, count, in.data(), out); });
        check_near(gelu, wanted([&](std::size_t i) { return gelu_of(in[i]); }), 1e-6);
      }
}

TEST_CASE("ReLU keeps NaN and passes no gradient to it, GELU ends at 0 and at x, as on the CPU") {
  const std::vector<float> x{NAN, INFINITY, -INFINITY, -0.0f, 30, -30}, d(6, 2.0f);
  const Memory<float> in(x), out_gradient(d);
  Memory<float> out(6), gradient(6), gelu(6);
  cuda::relu<float>(nullptr, 6, in.data(), out.data());
  cuda::relu_backward<float>(nullptr, 6, out.data(), out_gradient.data(), false, gradient.data());
  cuda::gelu<float>(nullptr, 6, in.data(), gelu.data());
  synchronize();
  std::vector<float> of_cpu(6);
  planned::kernels().relu(6, x.data(), of_cpu.data());
  for (int i = 1; i < 6; ++i) CHECK(out[i] == of_cpu[i]);
  CHECK(std::isnan(out[0]));
  CHECK(gradient.values() == std::vector<float>{0, 2, 0, 0, 2, 0});
  CHECK(std::isnan(gelu[0]));
  CHECK(gelu[4] == 30);
  CHECK(gelu[5] == 0);
}

TEST_CASE_TEMPLATE("sums of two, also in place, and filling", T, DTRUN_ACTIVATIONS) {
  for (const std::size_t count : kCounts) {
    CAPTURE(count);
    const std::vector<T> a = random_values<T>(4, count), b = random_values<T>(5, count);
    const auto [sum, left, filled, shifted] = in_all_orders([&] {
      const Memory<T> left(a), right(b);
      std::tuple out{Memory<T>(count), Memory<T>(a), Memory<T>(count), Memory<T>(count, 1)};
      cuda::add<T>(nullptr, count, left.data(), right.data(), std::get<0>(out).data());
      cuda::accumulate<T>(nullptr, count, right.data(), std::get<1>(out).data());
      cuda::fill<T>(nullptr, count, 1.5f, std::get<2>(out).data());
      cuda::fill<T>(nullptr, count, 0, std::get<3>(out).data());
      synchronize();
      return out;
    });
    for (std::size_t i = 0; i < count; ++i) {
      const float wanted = value_of(T(value_of(a[i]) + value_of(b[i])));
      CHECK((sum[i] == wanted && left[i] == wanted));
      CHECK((filled[i] == 1.5f && shifted[i] == 0));
    }
  }
}

TEST_CASE_TEMPLATE("dropout keeps the elements that the CPU keeps", T, DTRUN_ACTIVATIONS) {
  const RandomStream stream =
      dropout_stream({.seed = 0x123456789, .number = (std::uint64_t{3} << 32) + 17}, 5);
  const float probability = 0.3f, factor = 1 / (1 - probability);
  for (const std::size_t count : kCounts)
    for (const std::size_t shift : {0, 1})
      for (const bool add : {false, true}) {
        CAPTURE(count);
        CAPTURE(add);
        const std::vector<T> x = random_values<T>(6, count), old = random_values<T>(7, count);
        const Memory<T> in(x, shift);
        const Memory<RandomStream::Words> words(std::vector<RandomStream::Words>{stream.words()});
        const Memory<T> out = result(count, shift, add, old, [&](T* to) {
          cuda::dropout<T>(nullptr, count, words.data(), probability, in.data(), add, to);
        });
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < count; ++i) {
          const float value = in[i] * (keeps(stream, i, probability) ? factor : 0.0f);
          wrong += out[i] != value_of(T(add ? value_of(old[i]) + value : value));
        }
        CHECK(wrong == 0);
      }
}

TEST_CASE("fp32 becomes the nearest bf16, the even one of two") {
  std::vector<float> in{0.0f,     -0.0f,     1.0f, 0x1.01p0f,   0x1.03p0f, 0x1.010002p0f, -0x1.01p0f,
                        INFINITY, -INFINITY, NAN,  0x1.ffp127f, 0x1p-133f, 0x1p-140f};
  const std::vector<float> wanted{0.0f,     -0.0f,     1.0f, 1.0f,     0x1.04p0f, 0x1.02p0f, -1.0f,
                                  INFINITY, -INFINITY, NAN,  INFINITY, 0x1p-133f, 0.0f};
  for (const std::size_t shift : {0, 1}) {
    const auto [rounded] = in_all_orders([&] {
      const Memory<float> from(in, shift);
      std::tuple out{Memory<bf16>(in.size(), shift)};
      cuda::to_bf16(nullptr, in.size(), from.data(), std::get<0>(out).data());
      synchronize();
      return out;
    });
    for (std::size_t i = 0; i < in.size(); ++i) {
      CAPTURE(i);
      const float back = __bfloat162float(rounded[i]);
      CHECK((back == wanted[i] || (std::isnan(back) && std::isnan(wanted[i]))));
      CHECK(std::signbit(back) == std::signbit(wanted[i]));
    }
  }
}

}  // namespace dtrun::elementwise_test
