// cuDNN's plans carried out: the numbers against references in double, and the same bits each time. Needs a
// GPU.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <stdexcept>

#include "tests/support/skip.h"
#include "tests/support/worst.h"
#include "worker/device/cuda/cudnn/attention.h"
#include "worker/device/cuda/cudnn/convolution.h"

namespace dtrun::on_gpu_test {

using namespace dtrun::worker::cuda;

namespace {

using Bf16 = std::uint16_t;

Bf16 to_bf16(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<Bf16>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float from_bf16(Bf16 value) {
  const std::uint32_t bits = std::uint32_t{value} << 16;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

void check_cuda(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

// Device memory that holds `count` elements, at first all of them NaN.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(std::size_t count) : count_(count) {
    check_cuda(cudaMalloc(&memory_, count * sizeof(T) + 1));
    check_cuda(cudaMemset(memory_, 0xff, count * sizeof(T)));
  }
  explicit OnDevice(const std::vector<T>& values) : OnDevice(values.size()) {
    check_cuda(cudaMemcpy(memory_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~OnDevice() { cudaFree(memory_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  operator void*() const { return memory_; }  // NOLINT: it stands for the pointer
  std::vector<T> read() const {
    check_cuda(cudaDeviceSynchronize());
    std::vector<T> values(count_);
    check_cuda(cudaMemcpy(values.data(), memory_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  std::size_t count_;
  void* memory_ = nullptr;
};

// cuDNN and its plans for the GPU of this machine.
struct Gpu {
  const Cudnn& cudnn;
  CudnnHandle handle{cudnn, nullptr};
  PlanDevice device;

  explicit Gpu(const Cudnn& there) : cudnn(there) {
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, 0));
    device = {.name = properties.name,
              .compute_capability = properties.major * 10 + properties.minor,
              .handle = handle,
              .description = ""};
  }
};

// "" or why there is nothing to run on.
std::string why_no_gpu() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  return count == 0 ? "no GPU" : why_no_cudnn();
}

std::vector<float> random_values(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

std::vector<Bf16> rounded(const std::vector<float>& values) {
  std::vector<Bf16> result;
  for (const float value : values) result.push_back(to_bf16(value));
  return result;
}

std::vector<double> widened(const std::vector<Bf16>& values) {
  std::vector<double> result;
  for (const Bf16 value : values) result.push_back(from_bf16(value));
  return result;
}

std::vector<double> widened(const std::vector<float>& values) { return {values.begin(), values.end()}; }

// The largest difference, as a part of the largest value.
double difference(const std::vector<double>& found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    worst = test::worst_of(worst, std::abs(found[i] - expected[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  return worst / largest;
}

struct AttentionNumbers {
  std::vector<double> out, statistics, d_qkv;
};

// The textbook's formulas on the packed rows.
AttentionNumbers reference(const AttentionSizes& s, const std::vector<double>& qkv,
                           const std::vector<double>& d_out) {
  const auto count = [](std::int64_t number) { return static_cast<std::size_t>(number); };
  AttentionNumbers r{.out = std::vector<double>(count(s.rows() * s.width())),
                     .statistics = std::vector<double>(count(s.rows() * s.heads)),
                     .d_qkv = std::vector<double>(qkv.size())};
  const double scale = 1 / std::sqrt(static_cast<double>(s.head_size));
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const auto packed = [&](std::int64_t t, std::int64_t part, std::int64_t e) {
        return count((b * s.positions + t) * 3 * s.width() + part * s.width() + h * s.head_size + e);
      };
      const auto row = [&](std::int64_t t, std::int64_t e) {
        return count((b * s.positions + t) * s.width() + h * s.head_size + e);
      };
      for (std::int64_t t = 0; t < s.positions; ++t) {
        std::vector<double> probability(count(t + 1)), d_probability(count(t + 1));
        double sum = 0, weighted = 0;
        for (std::int64_t u = 0; u <= t; ++u) {
          double score = 0;
          for (std::int64_t e = 0; e < s.head_size; ++e) score += qkv[packed(t, 0, e)] * qkv[packed(u, 1, e)];
          sum += probability[count(u)] = std::exp(score * scale);
        }
        r.statistics[count((b * s.heads + h) * s.positions + t)] = std::log(sum);
        for (std::int64_t u = 0; u <= t; ++u) {
          probability[count(u)] /= sum;
          for (std::int64_t e = 0; e < s.head_size; ++e) {
            r.out[row(t, e)] += probability[count(u)] * qkv[packed(u, 2, e)];
            r.d_qkv[packed(u, 2, e)] += probability[count(u)] * d_out[row(t, e)];
            d_probability[count(u)] += d_out[row(t, e)] * qkv[packed(u, 2, e)];
          }
          weighted += probability[count(u)] * d_probability[count(u)];
        }
        for (std::int64_t u = 0; u <= t; ++u) {
          const double d_score = probability[count(u)] * (d_probability[count(u)] - weighted) * scale;
          for (std::int64_t e = 0; e < s.head_size; ++e) {
            r.d_qkv[packed(t, 0, e)] += d_score * qkv[packed(u, 1, e)];
            r.d_qkv[packed(u, 1, e)] += d_score * qkv[packed(t, 0, e)];
          }
        }
      }
    }
  return r;
}

// One attention on the GPU, forward and backward.
class RunAttention {
 public:
  RunAttention(const AttentionSizes& shape, const std::vector<Bf16>& qkv, const std::vector<Bf16>& d_out)
      : qkv_(qkv),
        d_out_(d_out),
        out_(d_out.size()),
        d_qkv_(qkv.size()),
        statistics_(static_cast<std::size_t>(shape.rows() * shape.heads)) {}

  void run(cudnnHandle_t handle, const AttentionGraphs& graphs) const {
    const OnDevice<char> workspace(
        static_cast<std::size_t>(std::max(graphs.forward_workspace(), graphs.backward_workspace())));
    graphs.forward(handle, qkv_, out_, statistics_, workspace);
    graphs.backward(handle, qkv_, out_, d_out_, statistics_, d_qkv_, workspace);
    check_cuda(cudaDeviceSynchronize());
  }
  std::vector<Bf16> out() const { return out_.read(); }
  std::vector<Bf16> d_qkv() const { return d_qkv_.read(); }
  std::vector<float> statistics() const { return statistics_.read(); }

 private:
  OnDevice<Bf16> qkv_, d_out_, out_, d_qkv_;
  OnDevice<float> statistics_;
};

}  // namespace

TEST_CASE("attention gives the reference's numbers, with a plan that was made and one that was loaded") {
  if (const std::string why = why_no_gpu(); !why.empty()) return test::skip(why);
  Gpu gpu(*cudnn());
  constexpr AttentionSizes kShape{.batch = 2, .heads = 3, .positions = 256, .head_size = 64};
  const auto rows = static_cast<std::size_t>(kShape.rows() * kShape.width());
  const std::vector<Bf16> qkv = rounded(random_values(3 * rows, 1)), d_out = rounded(random_values(rows, 2));
  const AttentionNumbers expected = reference(kShape, widened(qkv), widened(d_out));

  CudnnPlanner planner(gpu.cudnn, gpu.device, "");
  const Result<AttentionGraphs> made = AttentionGraphs::plan(planner, kShape);
  REQUIRE_MESSAGE(made.ok(), made.status().message());
  const RunAttention first(kShape, qkv, d_out);
  first.run(gpu.handle, made.value());
  CHECK(difference(widened(first.out()), expected.out) < 0.01);
  CHECK(difference(widened(first.statistics()), expected.statistics) < 0.001);
  CHECK(difference(widened(first.d_qkv()), expected.d_qkv) < 0.02);

  CudnnPlanner next_start(gpu.cudnn, gpu.device, planner.stored());
  const Result<AttentionGraphs> loaded = AttentionGraphs::plan(next_start, kShape);
  REQUIRE_MESSAGE(loaded.ok(), loaded.status().message());
  const RunAttention second(kShape, qkv, d_out);
  second.run(gpu.handle, loaded.value());
  CHECK((second.out() == first.out()));
  CHECK((second.d_qkv() == first.d_qkv()));
}

TEST_CASE("attention's gradients have the same bits each time") {
  if (const std::string why = why_no_gpu(); !why.empty()) return test::skip(why);
  Gpu gpu(*cudnn());
  // Many blocks: with few, additions in any order may happen to come in one.
  constexpr AttentionSizes kShape{.batch = 64, .heads = 12, .positions = 1024, .head_size = 64};
  const auto rows = static_cast<std::size_t>(kShape.rows() * kShape.width());
  CudnnPlanner planner(gpu.cudnn, gpu.device, "");
  const Result<AttentionGraphs> graphs = AttentionGraphs::plan(planner, kShape);
  REQUIRE_MESSAGE(graphs.ok(), graphs.status().message());
  const RunAttention attention(kShape, rounded(random_values(3 * rows, 1)), rounded(random_values(rows, 2)));
  attention.run(gpu.handle, graphs.value());
  const std::vector<Bf16> out = attention.out(), d_qkv = attention.d_qkv();
  for (int i = 0; i < 20; ++i) {
    attention.run(gpu.handle, graphs.value());
    CHECK((attention.out() == out));
    CHECK((attention.d_qkv() == d_qkv));
  }
}

TEST_CASE("convolutions give the reference's numbers, and the same bits each time") {
  if (const std::string why = why_no_gpu(); !why.empty()) return test::skip(why);
  Gpu gpu(*cudnn());
  CudnnPlanner planner(gpu.cudnn, gpu.device, "");
  for (const ConvSizes& s : {ConvSizes{16, 1, 28, 28, 20, 5}, ConvSizes{16, 20, 12, 12, 20, 5}}) {
    const Result<ConvGraphs> graphs = ConvGraphs::plan(planner, s, ConvType::kFp32);
    REQUIRE_MESSAGE(graphs.ok(), graphs.status().message());
    const auto count = [](std::int64_t number) { return static_cast<std::size_t>(number); };
    const auto of_x = [&](std::int64_t n, std::int64_t c, std::int64_t i, std::int64_t j) {
      return count(((n * s.in_channels + c) * s.height + i) * s.width + j);
    };
    const auto of_w = [&](std::int64_t k, std::int64_t c, std::int64_t i, std::int64_t j) {
      return count(((k * s.in_channels + c) * s.kernel + i) * s.kernel + j);
    };
    const auto of_y = [&](std::int64_t n, std::int64_t k, std::int64_t i, std::int64_t j) {
      return count(((n * s.out_channels + k) * s.out_height() + i) * s.out_width() + j);
    };
    const std::vector<float> x = random_values(of_x(s.batch, 0, 0, 0), 1),
                             w = random_values(of_w(s.out_channels, 0, 0, 0), 2),
                             dy = random_values(of_y(s.batch, 0, 0, 0), 3);
    std::vector<double> y(dy.size()), dx(x.size()), dw(w.size());
    for (std::int64_t n = 0; n < s.batch; ++n)
      for (std::int64_t k = 0; k < s.out_channels; ++k)
        for (std::int64_t i = 0; i < s.out_height(); ++i)
          for (std::int64_t j = 0; j < s.out_width(); ++j)
            for (std::int64_t c = 0; c < s.in_channels; ++c)
              for (std::int64_t p = 0; p < s.kernel; ++p)
                for (std::int64_t q = 0; q < s.kernel; ++q) {
                  const std::size_t at_x = of_x(n, c, i + p, j + q), at_w = of_w(k, c, p, q),
                                    at_y = of_y(n, k, i, j);
                  y[at_y] += double{x[at_x]} * w[at_w];
                  dx[at_x] += double{dy[at_y]} * w[at_w];
                  dw[at_w] += double{dy[at_y]} * x[at_x];
                }
    const OnDevice<float> on_x(x), on_w(w), on_dy(dy);
    const OnDevice<char> workspace(count(graphs.value().workspace_size()));
    std::vector<float> first;
    for (int i = 0; i < 10; ++i) {
      const OnDevice<float> on_y(y.size()), on_dx(x.size()), on_dw(w.size());
      graphs.value().forward(gpu.handle, on_x, on_w, on_y, workspace);
      graphs.value().input_gradient(gpu.handle, on_dy, on_w, on_dx, workspace);
      graphs.value().weight_gradient(gpu.handle, on_x, on_dy, on_dw, workspace);
      // In full fp32; with TF32 it would be a thousandth.
      CHECK(difference(widened(on_y.read()), y) < 1e-5);
      CHECK(difference(widened(on_dx.read()), dx) < 1e-5);
      CHECK(difference(widened(on_dw.read()), dw) < 1e-5);
      std::vector<float> all = on_y.read();
      for (const std::vector<float>& more : {on_dx.read(), on_dw.read()})
        all.insert(all.end(), more.begin(), more.end());
      if (i == 0) first = all;
      CHECK((all == first));
    }
  }
}

}  // namespace dtrun::on_gpu_test
