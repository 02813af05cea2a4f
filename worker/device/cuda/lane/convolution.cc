#include "worker/device/cuda/lane/convolution.h"

#include <algorithm>
#include <optional>

#include "worker/base/error.h"
#include "worker/device/cuda/failure.h"
#include "worker/device/cuda/kernels/trial.h"
#include "worker/device/cuda/schedule/places.h"

namespace dtrun::worker::cuda {
namespace {

// cuDNN's plans require this alignment.
bool on_16_bytes(const Place& place) { return Places::alignment(place) >= 16; }

std::size_t inputs_of(const ConvShape& s) {
  return static_cast<std::size_t>(s.samples) * s.in_channels * s.height * s.width;
}
std::size_t outputs_of(const ConvShape& s) {
  return static_cast<std::size_t>(s.samples) * s.out_channels * s.out_height() * s.out_width();
}
std::size_t weights_of(const ConvShape& s) {
  return static_cast<std::size_t>(s.out_channels) * s.in_channels * s.kernel * s.kernel;
}

}  // namespace

ConvShape convolution_of(const ImageShape& image) {
  return {.samples = image.samples,
          .in_channels = image.in_channels,
          .out_channels = image.out_channels,
          .height = image.height,
          .width = image.width,
          .kernel = image.kernel};
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

// In fp32 sums differ by the order of additions; TF32 would cause differences of a thousandth. In bf16
// results differ by rounding, twice in forward: before and after the bias.
template <typename T>
std::string ConvolutionOps<T>::try_out(const ConvShape& shape, bool with_input_gradient, Trial& trial) const {
  constexpr bool kBf16 = sizeof(T) == 2;
  constexpr float kTolerance = kBf16 ? 1.0f / 64 : 1e-4f;
  const std::size_t ins = inputs_of(shape), outs = outputs_of(shape), weights = weights_of(shape),
                    own_workspace = conv2d_backward_parameters_workspace(shape);
  constexpr std::size_t kVectors = 13;
  const auto channels = static_cast<std::size_t>(shape.out_channels);
  std::optional<Cut> memory = trial.memory((3 * ins + 3 * outs + weights) * sizeof(T) +
                                           (2 * weights + 2 * channels + own_workspace) * sizeof(float) +
                                           cudnn_->workspace(shape) + kVectors * Cut::kAlignment);
  if (!memory) return "the GPU has no room to try it out";
  auto* const in = memory->template next<T>(ins);
  auto* const weight = memory->template next<T>(weights);
  auto* const d_out = memory->template next<T>(outs);
  T* const out[] = {memory->template next<T>(outs), memory->template next<T>(outs)};
  T* const d_in[] = {memory->template next<T>(ins), memory->template next<T>(ins)};
  float* const d_weight[] = {memory->template next<float>(weights), memory->template next<float>(weights)};
  auto* const bias = memory->template next<float>(channels);
  auto* const d_bias = memory->template next<float>(channels);
  auto* const apart = memory->template next<float>(2);
  auto* const workspace =
      memory->template next<float>(std::max(own_workspace, cudnn_->workspace(shape) / sizeof(float) + 1));

  auto* const on = trial.stream().handle();
  scatter(on, ins, 1, 1, in);
  scatter(on, weights, 2, 1, weight);
  scatter(on, outs, 3, 1, d_out);
  scatter(on, channels, 4, 1, bias);
  check_launch("scatter");
  conv2d(on, shape, in, weight, bias, false, out[0]);
  conv2d_backward_input(on, shape, weight, d_out, false, d_in[0]);
  conv2d_backward_parameters(on, shape, in, d_out, false, d_weight[0], d_bias, workspace);
  check_launch("conv2d");
  // Memory that is not written must not look right.
  check(cudaMemsetAsync(out[1], 0xff, outs * sizeof(T), on), "clearing memory");
  check(cudaMemsetAsync(d_in[1], 0xff, ins * sizeof(T), on), "clearing memory");
  check(cudaMemsetAsync(d_weight[1], 0xff, weights * sizeof(float), on), "clearing memory");
  std::string fault;
  try {
    cudnn_->convolve(on, shape, in, weight, out[1], workspace);
    conv2d_bias(on, shape, bias, false, out[1]);
    check_launch("conv2d_bias");
    fault = trial.difference("output", outs, out[0], out[1], kTolerance, apart);
    if (fault.empty() && with_input_gradient) {
      cudnn_->convolve_backward_input(on, shape, weight, d_out, d_in[1], workspace);
      fault = trial.difference("input's gradient", ins, d_in[0], d_in[1], kTolerance, apart);
    }
    if (fault.empty() && !kBf16) {
      cudnn_->convolve_backward_weight(on, shape, in, d_out, d_weight[1], workspace);
      fault = trial.difference("weight's gradient", weights, d_weight[0], d_weight[1], kTolerance, apart);
    }
  } catch (const WorkerError& error) {
    return error.what();
  }
  return fault.empty() ? "" : "cuDNN's convolution is not that of the own kernels (" + fault + ")";
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
