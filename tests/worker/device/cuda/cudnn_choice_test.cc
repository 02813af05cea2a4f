// A lane's choice among cuDNN's operations, with a cuDNN that is made of the own kernels and may compute
// wrong.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tests/cuda_on_cpu/cuda_on_cpu.h"
#include "worker/base/error.h"
#include "worker/device/cuda/kernels/elementwise.h"
#include "worker/device/cuda/kernels/trial.h"
#include "worker/device/cuda/lane/attention.h"
#include "worker/device/cuda/lane/convolution.h"

namespace dtrun::worker::cuda::cudnn_choice_test {
namespace {

using bf16 = __nv_bfloat16;

// The fault of a library in one of its results.
enum class Fault {
  kNone,
  kRefuses,          // to plan
  kFails,            // when it runs
  kOut,              // the last element
  kStatistics,       // the last element
  kGradient,         // the last element, of the input's
  kWeightGradient,   // the last element
  kLeavesOut,        // does not write the output
  kGradientLeftOut,  // does not write the gradient
};

template <typename T>
void spoil(cudaStream_t on, T* values, std::size_t count) {
  fill(on, 1, 2000.0f, values + count - 1);
}

template <typename T>
class OwnKernelsAsCudnn final : public CudnnOps {
 public:
  explicit OwnKernelsAsCudnn(Fault fault) : fault_(fault) {}

  Status plan(const AttentionShape&) override { return plan(); }
  std::size_t workspace(const AttentionShape& shape) const override {
    return attention_statistics(shape) * sizeof(float) + 1000;
  }
  void attention(cudaStream_t on, const AttentionShape& shape, const void* qkv, void* out, float* statistics,
                 void* workspace) override {
    begin(on, workspace, this->workspace(shape));
    if (fault_ == Fault::kLeavesOut) return;
    const std::size_t rows = static_cast<std::size_t>(shape.samples) * shape.tokens * shape.width();
    cuda::attention(on, shape, of(qkv), of(out), statistics);
    if (fault_ == Fault::kOut) spoil(on, of(out), rows);
    if (fault_ == Fault::kStatistics) spoil(on, statistics, attention_statistics(shape));
  }
  void attention_backward(cudaStream_t on, const AttentionShape& shape, const void* qkv, const void* out,
                          const void* out_gradient, const float* statistics, void* qkv_gradient,
                          void* workspace) override {
    begin(on, workspace, this->workspace(shape));
    if (fault_ == Fault::kGradientLeftOut) return;
    const std::size_t rows = static_cast<std::size_t>(shape.samples) * shape.tokens * shape.width();
    cuda::attention_backward(on, shape, of(qkv), of(out), of(out_gradient), statistics, of(qkv_gradient),
                             static_cast<float*>(workspace));
    if (fault_ == Fault::kGradient) spoil(on, of(qkv_gradient), 3 * rows);
  }

  Status plan(const ConvShape&, bool, bool) override { return plan(); }
  std::size_t workspace(const ConvShape& shape) const override {
    return (conv2d_backward_parameters_workspace(shape) + shape.out_channels) * sizeof(float) + 1000;
  }
  void convolve(cudaStream_t on, const ConvShape& shape, const void* in, const void* weight, void* out,
                void* workspace) override {
    begin(on, workspace, this->workspace(shape));
    if (fault_ == Fault::kLeavesOut) return;
    auto* const zeros = static_cast<float*>(workspace);
    cudaMemsetAsync(zeros, 0, shape.out_channels * sizeof(float), on);
    conv2d(on, shape, of(in), of(weight), zeros, false, of(out));
    if (fault_ == Fault::kOut) spoil(on, of(out), outputs(shape));
  }
  void convolve_backward_input(cudaStream_t on, const ConvShape& shape, const void* weight,
                               const void* out_gradient, void* in_gradient, void* workspace) override {
    begin(on, workspace, this->workspace(shape));
    if (fault_ == Fault::kGradientLeftOut) return;
    conv2d_backward_input(on, shape, of(weight), of(out_gradient), false, of(in_gradient));
    if (fault_ == Fault::kGradient) spoil(on, of(in_gradient), inputs(shape));
  }
  void convolve_backward_weight(cudaStream_t on, const ConvShape& shape, const void* in,
                                const void* out_gradient, void* weight_gradient, void* workspace) override {
    begin(on, workspace, this->workspace(shape));
    auto* const sums = static_cast<float*>(workspace);
    conv2d_backward_parameters(on, shape, of(in), of(out_gradient), false,
                               static_cast<float*>(weight_gradient),
                               sums + conv2d_backward_parameters_workspace(shape), sums);
    if (fault_ == Fault::kWeightGradient)
      spoil(on, static_cast<float*>(weight_gradient),
            static_cast<std::size_t>(shape.out_channels) * shape.in_channels * shape.kernel * shape.kernel);
  }

  std::string stored() const override { return ""; }

  static std::size_t inputs(const ConvShape& s) {
    return static_cast<std::size_t>(s.samples) * s.in_channels * s.height * s.width;
  }
  static std::size_t outputs(const ConvShape& s) {
    return static_cast<std::size_t>(s.samples) * s.out_channels * s.out_height() * s.out_width();
  }

  int runs = 0;

 private:
  static T* of(void* memory) { return static_cast<T*>(memory); }
  static const T* of(const void* memory) { return static_cast<const T*>(memory); }
  Status plan() const { return fault_ == Fault::kRefuses ? Status(kExitUnavailable, "no engine") : Status(); }
  void begin(cudaStream_t on, void* workspace, std::size_t bytes) {
    if (fault_ == Fault::kFails) throw WorkerError(kExitOsError, "cuDNN failed");
    cudaMemsetAsync(workspace, 0xff, bytes, on);
    ++runs;
  }

  const Fault fault_;
};

struct Gpu {
  CudaArithmetic arithmetic{0};
  CudaStream stream{0};
  Trial trial{arithmetic, stream, nullptr, 0};
};

// Device memory of T whose values are scattered.
template <typename T>
struct Scattered {
  Scattered(Gpu& gpu, std::size_t size, unsigned seed)
      : count(size), memory(gpu.arithmetic.allocate_bytes(size * sizeof(T), "a test")) {
    scatter(gpu.stream.handle(), size, seed, 1, data());
  }
  T* data() const { return reinterpret_cast<T*>(const_cast<float*>(memory.data())); }
  std::vector<std::byte> read(const CudaStream& stream) const {
    std::vector<std::byte> bytes(count * sizeof(T));
    cudaMemcpyAsync(bytes.data(), data(), bytes.size(), cudaMemcpyDeviceToHost, stream.handle());
    cudaStreamSynchronize(stream.handle());
    return bytes;
  }
  std::size_t count;
  Buffer memory;
};

constexpr AttentionShape kAttention{.samples = 2, .tokens = 40, .heads = 2, .head_size = 8};

TEST_CASE("attention is cuDNN's if it computes what the own kernels do, and else theirs") {
  for (const Fault fault : {Fault::kNone, Fault::kRefuses, Fault::kFails, Fault::kOut, Fault::kStatistics,
                            Fault::kGradient, Fault::kLeavesOut, Fault::kGradientLeftOut}) {
    CAPTURE(static_cast<int>(fault));
    Gpu gpu;
    OwnKernelsAsCudnn<bf16> cudnn(fault);
    AttentionOps<bf16> ops;
    CHECK(ops.use(cudnn, kAttention, gpu.trial).empty() == (fault == Fault::kNone));
    const int before = cudnn.runs;
    const std::size_t rows = 2 * 40 * 16;
    const Scattered<bf16> qkv(gpu, 3 * rows, 1), out(gpu, rows, 2), d_out(gpu, rows, 3),
        d_qkv(gpu, 3 * rows, 4);
    const Scattered<float> statistics(gpu, attention_statistics(kAttention), 5);
    AttentionForward forward{};
    forward.samples = 2, forward.tokens = 40, forward.heads = 2, forward.width = 16;
    AttentionBackward backward{};
    backward.samples = 2, backward.tokens = 40, backward.heads = 2, backward.width = 16;
    const Buffer workspace =
        gpu.arithmetic.allocate_bytes(std::max(ops.workspace(forward), ops.workspace(backward)), "a test");
    auto* const work = const_cast<float*>(workspace.data());
    ops.forward(gpu.stream.handle(), kAttention, qkv.data(), out.data(), statistics.data(), work);
    ops.backward(gpu.stream.handle(), kAttention, qkv.data(), out.data(), d_out.data(), statistics.data(),
                 d_qkv.data(), work);
    gpu.stream.wait();
    CHECK(cudnn.runs - before == (fault == Fault::kNone ? 2 : 0));
    CHECK((ops.workspace(forward) > 0) == (fault == Fault::kNone));
  }
}

TEST_CASE("attention in fp32 is never cuDNN's") {
  Gpu gpu;
  OwnKernelsAsCudnn<float> cudnn(Fault::kNone);
  AttentionOps<float> ops;
  CHECK(!ops.use(cudnn, kAttention, gpu.trial).empty());
  CHECK(cudnn.runs == 0);
}

// Runs a convolution's three steps; returns all that they wrote.
template <typename T>
std::vector<std::byte> convolve(Gpu& gpu, const ConvolutionOps<T>& ops, bool add, std::size_t weight_offset) {
  const ImageShape image{
      .samples = 3, .in_channels = 2, .height = 9, .width = 7, .out_channels = 5, .kernel = 3};
  const ConvShape shape = convolution_of(image);
  const std::size_t weights = 5 * 2 * 9;
  const Scattered<T> in(gpu, OwnKernelsAsCudnn<T>::inputs(shape), 1), weight(gpu, weights, 2),
      out(gpu, OwnKernelsAsCudnn<T>::outputs(shape), 3), d_out(gpu, out.count, 4), d_in(gpu, in.count, 5);
  const Scattered<float> bias(gpu, 5, 6), d_weight(gpu, weights, 7), d_bias(gpu, 5, 8);
  Convolve forward{};
  forward.shape = image, forward.relu = true, forward.weight = {Space::kMatrices, weight_offset};
  ConvolveInGradient input{};
  input.shape = image, input.add = add, input.weight = forward.weight;
  ConvolveWeightGradient parameters{};
  parameters.shape = image, parameters.add = add,
  parameters.weight_gradient = {Space::kGradient, weight_offset};
  const Buffer workspace = gpu.arithmetic.allocate_bytes(
      std::max({ops.workspace(forward), ops.workspace(input), ops.workspace(parameters)}), "a test");
  auto* const work = const_cast<float*>(workspace.data());
  const cudaStream_t on = gpu.stream.handle();
  ops.forward(on, forward, in.data(), weight.data(), bias.data(), out.data(), work);
  ops.backward_input(on, input, weight.data(), d_out.data(), d_in.data(), work);
  ops.backward_parameters(on, parameters, in.data(), d_out.data(), d_weight.data(), d_bias.data(), work);
  std::vector<std::byte> all;
  for (const auto& bytes : {out.read(gpu.stream), d_in.read(gpu.stream), d_weight.read(gpu.stream)})
    all.insert(all.end(), bytes.begin(), bytes.end());
  return all;
}

constexpr ConvShape kConvolution{
    .samples = 3, .in_channels = 2, .out_channels = 5, .height = 9, .width = 7, .kernel = 3};

TEST_CASE("a convolution is cuDNN's if it computes what the own kernels do, and else theirs") {
  for (const Fault fault : {Fault::kNone, Fault::kRefuses, Fault::kFails, Fault::kOut, Fault::kGradient,
                            Fault::kWeightGradient, Fault::kLeavesOut, Fault::kGradientLeftOut}) {
    CAPTURE(static_cast<int>(fault));
    Gpu gpu;
    OwnKernelsAsCudnn<float> cudnn(fault);
    ConvolutionOps<float> ops;
    CHECK(ops.use(cudnn, kConvolution, true, gpu.trial).empty() == (fault == Fault::kNone));
    const int before = cudnn.runs;
    convolve(gpu, ops, false, 0);
    CHECK(cudnn.runs - before == (fault == Fault::kNone ? 3 : 0));
  }
}

TEST_CASE("what cuDNN cannot do of a convolution stays with the own kernels") {
  Gpu gpu;
  OwnKernelsAsCudnn<float> cudnn(Fault::kNone);
  ConvolutionOps<float> ops;
  const auto runs = [&](bool add, std::size_t offset) {
    const int before = cudnn.runs;
    convolve(gpu, ops, add, offset);
    return cudnn.runs - before;
  };
  REQUIRE(ops.use(cudnn, kConvolution, true, gpu.trial).empty());
  CHECK(runs(false, 32) == 3);
  CHECK(runs(true, 32) == 1);   // forward
  CHECK(runs(false, 36) == 0);  // off 16 bytes

  OwnKernelsAsCudnn<bf16> in_bf16(Fault::kNone);
  ConvolutionOps<bf16> bf16_ops;
  REQUIRE(bf16_ops.use(in_bf16, kConvolution, true, gpu.trial).empty());
  const int before = in_bf16.runs;
  convolve(gpu, bf16_ops, false, 0);
  CHECK(in_bf16.runs - before == 2);  // not the weight's gradient, which it would round
}

TEST_CASE("cuDNN's convolution with the own bias and ReLU is the own convolution") {
  Gpu gpu;
  OwnKernelsAsCudnn<float> cudnn(Fault::kNone);
  ConvolutionOps<float> own, with_cudnn;
  REQUIRE(with_cudnn.use(cudnn, kConvolution, true, gpu.trial).empty());
  const std::vector<std::byte> right = convolve(gpu, own, false, 0),
                               got = convolve(gpu, with_cudnn, false, 0);
  REQUIRE(right.size() == got.size());
  for (std::size_t i = 0; i < right.size(); i += sizeof(float)) {
    float a, b;
    std::memcpy(&a, &right[i], sizeof a);
    std::memcpy(&b, &got[i], sizeof b);
    CHECK(a == doctest::Approx(b).epsilon(1e-4));
  }
}

}  // namespace
}  // namespace dtrun::worker::cuda::cudnn_choice_test
