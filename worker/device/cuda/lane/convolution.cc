#include "worker/device/cuda/lane/convolution.h"

#include <algorithm>
#include <optional>

#include "worker/base/error.h"
#include "worker/device/cuda/failure.h"
#include "worker/device/cuda/kernels/trial.h"
#include "worker/schedule/places.h"

namespace dtrun::worker::cuda {
namespace {

// cuDNN's plans require this alignment.
bool on_16_bytes(const Place& place) { return Places::alignment(place) >= 16; }

// One shape computed by the own kernels and by cuDNN, on the same numbers.
template <typename T>
class ConvolutionTrial {
 public:
  ConvolutionTrial(const ConvShape& shape, CudnnOps& cudnn, Trial& trial)
      : shape_(shape), cudnn_(cudnn), trial_(trial), on_(trial.stream().handle()) {}

  // Bytes of device memory.
  std::size_t bytes() const {
    constexpr std::size_t kVectors = 13;
    return (3 * ins_ + 3 * outs_ + weights_) * sizeof(T) +
           (2 * weights_ + 2 * channels_ + own_workspace_) * sizeof(float) + cudnn_.workspace(shape_) +
           kVectors * Cut::kAlignment;
  }

  // `memory`: bytes() bytes.
  void compute_own(Cut memory) {
    in_ = memory.next<T>(ins_);
    weight_ = memory.next<T>(weights_);
    d_out_ = memory.next<T>(outs_);
    for (T*& vector : out_) vector = memory.next<T>(outs_);
    for (T*& vector : d_in_) vector = memory.next<T>(ins_);
    for (float*& vector : d_weight_) vector = memory.next<float>(weights_);
    bias_ = memory.next<float>(channels_);
    auto* const d_bias = memory.next<float>(channels_);
    apart_ = memory.next<float>(2);
    workspace_ = memory.next<float>(std::max(own_workspace_, cudnn_.workspace(shape_) / sizeof(float) + 1));

    scatter(on_, ins_, 1, 1, in_);
    scatter(on_, weights_, 2, 1, weight_);
    scatter(on_, outs_, 3, 1, d_out_);
    scatter(on_, channels_, 4, 1, bias_);
    check_launch("scatter");
    conv2d(on_, shape_, in_, weight_, bias_, false, out_[0]);
    conv2d_backward_input(on_, shape_, weight_, d_out_, false, d_in_[0]);
    conv2d_backward_parameters(on_, shape_, in_, d_out_, false, d_weight_[0], d_bias, workspace_);
    check_launch("conv2d");
    // Memory that is not written must not look right.
    check(cudaMemsetAsync(out_[1], 0xff, outs_ * sizeof(T), on_), "clearing memory");
    check(cudaMemsetAsync(d_in_[1], 0xff, ins_ * sizeof(T), on_), "clearing memory");
    check(cudaMemsetAsync(d_weight_[1], 0xff, weights_ * sizeof(float), on_), "clearing memory");
  }

  // "", or where cuDNN's results differ. In fp32 sums differ by the order of additions; TF32 would cause
  // differences of a thousandth. In bf16 results differ by rounding, twice in forward: before and after the
  // bias.
  std::string fault(bool with_input_gradient) const {
    constexpr bool kBf16 = sizeof(T) == 2;
    constexpr float kTolerance = kBf16 ? 1.0f / 64 : 1e-4f;
    cudnn_.convolve(on_, shape_, in_, weight_, out_[1], workspace_);
    conv2d_bias(on_, shape_, bias_, false, out_[1]);
    check_launch("conv2d_bias");
    std::string fault = trial_.difference("output", outs_, out_[0], out_[1], kTolerance, apart_);
    if (fault.empty() && with_input_gradient) {
      cudnn_.convolve_backward_input(on_, shape_, weight_, d_out_, d_in_[1], workspace_);
      fault = trial_.difference("input's gradient", ins_, d_in_[0], d_in_[1], kTolerance, apart_);
    }
    if (fault.empty() && !kBf16) {
      cudnn_.convolve_backward_weight(on_, shape_, in_, d_out_, d_weight_[1], workspace_);
      fault =
          trial_.difference("weight's gradient", weights_, d_weight_[0], d_weight_[1], kTolerance, apart_);
    }
    return fault;
  }

 private:
  const ConvShape shape_;
  CudnnOps& cudnn_;
  Trial& trial_;
  cudaStream_t on_;
  // Elements.
  const std::size_t channels_ = static_cast<std::size_t>(shape_.out_channels);
  const std::size_t ins_ =
      static_cast<std::size_t>(shape_.samples) * shape_.in_channels * shape_.height * shape_.width;
  const std::size_t outs_ = shape_.samples * channels_ * shape_.out_height() * shape_.out_width();
  const std::size_t weights_ = channels_ * shape_.in_channels * shape_.kernel * shape_.kernel;
  const std::size_t own_workspace_ = conv2d_backward_parameters_workspace(shape_);
  // Results: [0] the own kernels', [1] cuDNN's.
  T *in_ = nullptr, *weight_ = nullptr, *d_out_ = nullptr, *out_[2] = {}, *d_in_[2] = {};
  float *d_weight_[2] = {}, *bias_ = nullptr, *apart_ = nullptr, *workspace_ = nullptr;
};

}  // namespace

ConvShape convolution_of(const ImageShape& image) {
  return {.samples = image.samples,
          .in_channels = image.in_channels,
          .out_channels = image.out_channels,
          .height = image.height,
          .width = image.width,
          .kernel = image.kernel,
          .stride = image.stride,
          .padding = image.padding};
}

template <typename T>
std::string ConvolutionOps<T>::use(CudnnOps& cudnn, const ConvShape& shape, bool with_input_gradient,
                                   Trial& trial) {
  const Status planned = cudnn.plan(shape, sizeof(T) == 2, with_input_gradient);
  if (!planned.ok()) return planned.message();
  cudnn_ = &cudnn;
  std::string fault = try_out(shape, with_input_gradient, trial);
  if (fault.empty()) cudnns_.insert(shape);
  return fault;
}

template <typename T>
std::string ConvolutionOps<T>::try_out(const ConvShape& shape, bool with_input_gradient, Trial& trial) const {
  ConvolutionTrial<T> convolution(shape, *cudnn_, trial);
  const std::optional<Cut> memory = trial.memory(convolution.bytes());
  if (!memory) return "the GPU has no room to try it out";
  convolution.compute_own(*memory);
  try {
    const std::string fault = convolution.fault(with_input_gradient);
    return fault.empty() ? "" : "cuDNN's convolution is not that of the own kernels (" + fault + ")";
  } catch (const WorkerError& error) {
    return error.what();
  }
}

template <typename T>
bool ConvolutionOps<T>::is_cudnns(const Convolve& work) const {
  return is_cudnns(convolution_of(work.shape)) && on_16_bytes(work.weight);
}
template <typename T>
bool ConvolutionOps<T>::is_cudnns(const ConvolveInGradient& work) const {
  return is_cudnns(convolution_of(work.shape)) && !work.add && on_16_bytes(work.weight);
}
template <typename T>
bool ConvolutionOps<T>::is_cudnns(const ConvolveWeightGradient& work) const {
  return sizeof(T) == 4 && is_cudnns(convolution_of(work.shape)) && !work.add &&
         on_16_bytes(work.weight_gradient);
}

template <typename T>
std::size_t ConvolutionOps<T>::workspace(const Convolve& work) const {
  return is_cudnns(work) ? cudnn_->workspace(convolution_of(work.shape)) : 0;
}
template <typename T>
std::size_t ConvolutionOps<T>::workspace(const ConvolveInGradient& work) const {
  return is_cudnns(work) ? cudnn_->workspace(convolution_of(work.shape)) : 0;
}
template <typename T>
std::size_t ConvolutionOps<T>::workspace(const ConvolveWeightGradient& work) const {
  const ConvShape shape = convolution_of(work.shape);
  if (!is_cudnns(work)) return conv2d_backward_parameters_workspace(shape) * sizeof(float);
  // The two steps use the memory one after the other.
  return std::max(cudnn_->workspace(shape), conv2d_backward_bias_workspace(shape) * sizeof(float));
}

template <typename T>
void ConvolutionOps<T>::forward(cudaStream_t on, const Convolve& work, const T* in, const T* weight,
                                const float* bias, T* out, float* workspace) const {
  const ConvShape shape = convolution_of(work.shape);
  if (is_cudnns(work)) {
    cudnn_->convolve(on, shape, in, weight, out, workspace);
    conv2d_bias(on, shape, bias, work.relu, out);
  } else {
    conv2d(on, shape, in, weight, bias, work.relu, out);
  }
  check_launch("conv2d");
}

template <typename T>
void ConvolutionOps<T>::backward_input(cudaStream_t on, const ConvolveInGradient& work, const T* weight,
                                       const T* out_gradient, T* in_gradient, float* workspace) const {
  const ConvShape shape = convolution_of(work.shape);
  if (is_cudnns(work))
    return cudnn_->convolve_backward_input(on, shape, weight, out_gradient, in_gradient, workspace);
  conv2d_backward_input(on, shape, weight, out_gradient, work.add, in_gradient);
  check_launch("conv2d_backward_input");
}

template <typename T>
void ConvolutionOps<T>::backward_parameters(cudaStream_t on, const ConvolveWeightGradient& work, const T* in,
                                            const T* out_gradient, float* weight_gradient,
                                            float* bias_gradient, float* workspace) const {
  const ConvShape shape = convolution_of(work.shape);
  if (is_cudnns(work)) {
    cudnn_->convolve_backward_weight(on, shape, in, out_gradient, weight_gradient, workspace);
    conv2d_backward_bias(on, shape, out_gradient, false, bias_gradient, workspace);
  } else {
    conv2d_backward_parameters(on, shape, in, out_gradient, work.add, weight_gradient, bias_gradient,
                               workspace);
  }
  check_launch("conv2d_backward_parameters");
}

template class ConvolutionOps<float>;
template class ConvolutionOps<__nv_bfloat16>;

}  // namespace dtrun::worker::cuda
