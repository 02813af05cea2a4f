#include "worker/device/cuda/cudnn/convolution.h"

#include <algorithm>

namespace dtrun::worker::cuda {
namespace {

enum ConvUid : std::int64_t { kImages = 1, kWeight, kOutputs };

std::string conv_title(const ConvSizes& s, ConvType type, const std::string& which) {
  const auto n = [](std::int64_t number) { return std::to_string(number); };
  return "convolution " + which + " N=" + n(s.batch) + " " + n(s.in_channels) + "x" + n(s.height) + "x" +
         n(s.width) + " to " + n(s.out_channels) + ", kernel " + n(s.kernel) +
         (s.stride == 1 ? "" : ", stride " + n(s.stride)) +
         (s.padding == 0 ? "" : ", padding " + n(s.padding)) + (type == ConvType::kFp32 ? " fp32" : " bf16");
}

// A graph of one operation and its three tensors: the same for a value and for its gradient.
struct ConvGraph {
  ConvGraph(const Cudnn& cudnn, const ConvSizes& s, ConvType type, const std::string& which)
      : graph(cudnn, conv_title(s, type, which)),
        images(graph.memory(kImages, TensorLayout::dense({s.batch, s.in_channels, s.height, s.width}),
                            of(type))),
        weight(graph.memory(kWeight, TensorLayout::dense({s.out_channels, s.in_channels, s.kernel, s.kernel}),
                            of(type))),
        outputs(graph.memory(kOutputs,
                             TensorLayout::dense({s.batch, s.out_channels, s.out_height(), s.out_width()}),
                             of(type))),
        moves{.stride = s.stride, .padding = s.padding} {}

  static cudnnDataType_t of(ConvType type) {
    return type == ConvType::kFp32 ? CUDNN_DATA_FLOAT : CUDNN_DATA_BFLOAT16;
  }

  Graph graph;
  Graph::Tensor images, weight, outputs;
  ConvMoves moves;
};

void execute(const CudnnPlan& plan, cudnnHandle_t handle, const void* images, const void* weight,
             const void* outputs, void* workspace) {
  plan.execute(handle,
               {{kImages, const_cast<void*>(images)},
                {kWeight, const_cast<void*>(weight)},
                {kOutputs, const_cast<void*>(outputs)}},
               workspace);
}

}  // namespace

Result<ConvGraphs> ConvGraphs::plan(CudnnPlanner& planner, const ConvSizes& shape, ConvType type,
                                    bool with_input_gradient) {
  const EngineRules rules{.deterministic = true, .full_fp32 = type == ConvType::kFp32};
  try {
    ConvGraph forward(planner.cudnn(), shape, type, "forward");
    forward.graph.conv_forward(forward.images, forward.weight, forward.outputs, forward.moves);
    std::optional<CudnnPlan> input_plan;
    if (with_input_gradient) {
      ConvGraph input(planner.cudnn(), shape, type, "input gradient");
      input.graph.conv_input_gradient(input.outputs, input.weight, input.images, input.moves);
      input_plan = planner.plan(input.graph, rules);
    }
    ConvGraph weight(planner.cudnn(), shape, type, "weight gradient");
    weight.graph.conv_weight_gradient(weight.images, weight.outputs, weight.weight, weight.moves);
    return ConvGraphs(planner.plan(forward.graph, rules), std::move(input_plan),
                      planner.plan(weight.graph, rules));
  } catch (const CudnnRefusal& refusal) {
    return Status(kExitUnavailable, refusal.what());
  }
}

void ConvGraphs::forward(cudnnHandle_t handle, const void* x, const void* weight, void* y,
                         void* workspace) const {
  execute(forward_, handle, x, weight, y, workspace);
}

void ConvGraphs::input_gradient(cudnnHandle_t handle, const void* dy, const void* weight, void* dx,
                                void* workspace) const {
  execute(*input_gradient_, handle, dx, weight, dy, workspace);
}

void ConvGraphs::weight_gradient(cudnnHandle_t handle, const void* x, const void* dy, void* d_weight,
                                 void* workspace) const {
  execute(weight_gradient_, handle, x, d_weight, dy, workspace);
}

std::int64_t ConvGraphs::workspace_size() const {
  return std::max({forward_.workspace_size(), input_gradient_ ? input_gradient_->workspace_size() : 0,
                   weight_gradient_.workspace_size()});
}

}  // namespace dtrun::worker::cuda
