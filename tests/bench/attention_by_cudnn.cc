#include <algorithm>
#include <memory>
#include <utility>

#include "tests/bench/attention_ways.h"
#include "worker/device/cuda/cudnn/attention.h"
#include "worker/device/cuda/libraries/cudnn.h"

namespace dtrun::worker::cuda {
namespace {

// The graphs of one way, with the handle that they are run with.
struct Planned {
  Planned(const Cudnn& cudnn, const PlanDevice& gpu, const AttentionSizes& shape, AttentionGradientSums how)
      : handle(cudnn, nullptr),
        planner(cudnn,
                {.name = gpu.name,
                 .compute_capability = gpu.compute_capability,
                 .handle = handle,
                 .description = ""},
                ""),
        graphs(AttentionGraphs::plan(planner, shape, how)) {}

  CudnnHandle handle;
  CudnnPlanner planner;
  Result<AttentionGraphs> graphs;
};

AttentionWay way_of(const std::string& name, const std::shared_ptr<Planned>& planned) {
  if (!planned->graphs.ok()) return {.name = name, .why_not = planned->graphs.status().message()};
  const AttentionGraphs& graphs = planned->graphs.value();
  return {.name = name,
          .workspace =
              static_cast<std::size_t>(std::max(graphs.forward_workspace(), graphs.backward_workspace())),
          .forward =
              [planned, &graphs](cudaStream_t on, const AttentionMemory<__nv_bfloat16>& m, void* work) {
                planned->handle.use(on);
                graphs.forward(planned->handle, m.qkv.data(), m.out.data(), m.statistics.data(), work);
              },
          .backward =
              [planned, &graphs](cudaStream_t on, const AttentionMemory<__nv_bfloat16>& m, void* work) {
                planned->handle.use(on);
                const auto zeros = static_cast<std::size_t>(graphs.zeros_in_workspace());
                if (zeros > 0) check(cudaMemsetAsync(work, 0, zeros, on), "clearing memory");
                graphs.backward(planned->handle, m.qkv.data(), m.out.data(), m.out_gradient.data(),
                                m.statistics.data(), m.qkv_gradient.data(), work);
              }};
}

}  // namespace

std::vector<AttentionWay> cudnn_ways(const AttentionShape& shape) {
  const Cudnn* const library = cudnn();
  if (library == nullptr) return {{.name = "cuDNN", .why_not = why_no_cudnn()}};
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "asking what it is");
  const PlanDevice gpu{.name = properties.name,
                       .compute_capability = properties.major * 10 + properties.minor,
                       .handle = nullptr,
                       .description = ""};
  const AttentionSizes sizes{
      .batch = shape.samples, .heads = shape.heads, .positions = shape.tokens, .head_size = shape.head_size};
  std::vector<AttentionWay> ways;
  for (const auto& [name, how] : {std::pair{"cuDNN, deterministic", AttentionGradientSums::kDeterministic},
                                  std::pair{"cuDNN, atomic sums", AttentionGradientSums::kAtomicSums}})
    ways.push_back(way_of(name, std::make_shared<Planned>(*library, gpu, sizes, how)));
  return ways;
}

}  // namespace dtrun::worker::cuda
