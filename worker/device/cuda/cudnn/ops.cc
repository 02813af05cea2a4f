#include <algorithm>
#include <map>
#include <utility>

#include "worker/device/cuda/cudnn/attention.h"
#include "worker/device/cuda/cudnn/convolution.h"
#include "worker/device/cuda/cudnn_ops.h"
#include "worker/device/cuda/failure.h"
#include "worker/device/cuda/libraries/cudnn.h"

namespace dtrun::worker::cuda {
namespace {

AttentionSizes sizes_of(const AttentionShape& s) {
  return {.batch = s.samples, .heads = s.heads, .positions = s.tokens, .head_size = s.head_size};
}
ConvSizes sizes_of(const ConvShape& s) {
  return {.batch = s.samples,
          .in_channels = s.in_channels,
          .height = s.height,
          .width = s.width,
          .out_channels = s.out_channels,
          .kernel = s.kernel,
          .stride = s.stride,
          .padding = s.padding};
}

PlanDevice plan_device(int gpu, cudnnHandle_t handle) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, gpu), "asking what it is");
  return {.name = properties.name,
          .compute_capability = properties.major * 10 + properties.minor,
          .handle = handle,
          .description = ""};
}

class LoadedCudnnOps final : public CudnnOps {
 public:
  LoadedCudnnOps(const Cudnn& cudnn, int gpu, const std::string& stored)
      : handle_(cudnn, nullptr), planner_(cudnn, plan_device(gpu, handle_), stored) {}

  Status plan(const AttentionShape& shape) override {
    return keep(attention_, shape, AttentionGraphs::plan(planner_, sizes_of(shape)));
  }
  std::size_t workspace(const AttentionShape& shape) const override {
    const AttentionGraphs& graphs = attention_.at(shape);
    return static_cast<std::size_t>(std::max(graphs.forward_workspace(), graphs.backward_workspace()));
  }
  void attention(cudaStream_t on, const AttentionShape& shape, const void* qkv, void* out, float* statistics,
                 void* workspace) override {
    attention_.at(shape).forward(handle(on), qkv, out, statistics, workspace);
  }
  void attention_backward(cudaStream_t on, const AttentionShape& shape, const void* qkv, const void* out,
                          const void* out_gradient, const float* statistics, void* qkv_gradient,
                          void* workspace) override {
    attention_.at(shape).backward(handle(on), qkv, out, out_gradient, statistics, qkv_gradient, workspace);
  }

  Status plan(const ConvShape& shape, bool bf16, bool with_input_gradient) override {
    return keep(convolutions_, shape,
                ConvGraphs::plan(planner_, sizes_of(shape), bf16 ? ConvType::kBf16 : ConvType::kFp32,
                                 with_input_gradient));
  }
  std::size_t workspace(const ConvShape& shape) const override {
    return static_cast<std::size_t>(convolutions_.at(shape).workspace_size());
  }
  void convolve(cudaStream_t on, const ConvShape& shape, const void* in, const void* weight, void* out,
                void* workspace) override {
    convolutions_.at(shape).forward(handle(on), in, weight, out, workspace);
  }
  void convolve_backward_input(cudaStream_t on, const ConvShape& shape, const void* weight,
                               const void* out_gradient, void* in_gradient, void* workspace) override {
    convolutions_.at(shape).input_gradient(handle(on), out_gradient, weight, in_gradient, workspace);
  }
  void convolve_backward_weight(cudaStream_t on, const ConvShape& shape, const void* in,
                                const void* out_gradient, void* weight_gradient, void* workspace) override {
    convolutions_.at(shape).weight_gradient(handle(on), in, out_gradient, weight_gradient, workspace);
  }

  std::string stored() const override {
    return attention_.empty() && convolutions_.empty() ? "" : planner_.stored();
  }

 private:
  template <typename Shape, typename Graphs>
  static Status keep(std::map<Shape, Graphs>& all, const Shape& shape, Result<Graphs> planned) {
    if (!planned.ok()) return planned.status();
    all.insert_or_assign(shape, std::move(planned).value());
    return {};
  }
  // Plans must run with the handle that they were made for.
  cudnnHandle_t handle(cudaStream_t on) {
    handle_.use(on);
    return handle_;
  }

  CudnnHandle handle_;
  CudnnPlanner planner_;
  std::map<AttentionShape, AttentionGraphs> attention_;
  std::map<ConvShape, ConvGraphs> convolutions_;
};

}  // namespace

std::unique_ptr<CudnnOps> make_cudnn_ops(int gpu, const std::string& stored) {
  const Cudnn* const library = cudnn();
  return library == nullptr ? nullptr : std::make_unique<LoadedCudnnOps>(*library, gpu, stored);
}

const std::string& why_no_cudnn_ops() { return why_no_cudnn(); }

std::string cudnn_version() { return cudnn() == nullptr ? "" : cudnn()->version; }

}  // namespace dtrun::worker::cuda
