#include "worker/device/cuda/cudnn/attention.h"

#include <cmath>
#include <limits>

namespace dtrun::worker::cuda {
namespace {

using Tensor = Graph::Tensor;

constexpr auto kBf16 = CUDNN_DATA_BFLOAT16;
constexpr auto kFp32 = CUDNN_DATA_FLOAT;

enum AttentionUid : std::int64_t {
  kQuery = 1,
  kKey,
  kValue,
  kOut,
  kStatistics,
  kQueryGradient,
  kKeyGradient,
  kValueGradient,
  kOutGradient,
  kRowSums,
  kScale,
  kMasked,
  kOne,
};

// Layouts of cuDNN's tensors: [batch, heads, positions, head_size], or positions twice for scores.
struct Layouts {
  explicit Layouts(const AttentionSizes& s)
      : packed{.sizes = {s.batch, s.heads, s.positions, s.head_size},
               .strides = {3 * s.width() * s.positions, s.head_size, 3 * s.width(), 1}},
        rows{.sizes = packed.sizes, .strides = {s.width() * s.positions, s.head_size, s.width(), 1}},
        scores(TensorLayout::dense({s.batch, s.heads, s.positions, s.positions})),
        statistics(TensorLayout::dense({s.batch, s.heads, s.positions, 1})) {}

  TensorLayout packed, rows, scores, statistics;
};

std::string attention_title(const AttentionSizes& s, const std::string& which) {
  return "attention " + which + " B=" + std::to_string(s.batch) + " H=" + std::to_string(s.heads) +
         " T=" + std::to_string(s.positions) + " d=" + std::to_string(s.head_size) + " bf16";
}

// cuDNN selects fused kernels by the operations and their order, so both graphs equal those of its own
// frontend library.
class AttentionGraph {
 public:
  AttentionGraph(const Cudnn& cudnn, const AttentionSizes& shape, const std::string& which)
      : layout_(shape), graph_(cudnn, attention_title(shape, which)) {}

  Graph forward() {
    const Tensor query = graph_.memory(kQuery, layout_.packed, kBf16);
    const Tensor key = graph_.memory(kKey, layout_.packed.transposed(), kBf16);
    const Tensor value = graph_.memory(kValue, layout_.packed, kBf16);
    const Tensor out = graph_.memory(kOut, layout_.rows, kBf16);
    const Tensor statistics = graph_.memory(kStatistics, layout_.statistics, kFp32);
    const Tensor scale = graph_.number(kScale);

    const Tensor matmuls = scores(), scaled = scores();
    graph_.matmul(query, key, matmuls);
    graph_.pointwise(CUDNN_POINTWISE_MUL, matmuls, scale, scaled);
    const Tensor causal = causal_scores(scaled);
    const Tensor largest = sums(), shifted = scores(), exponentials = scores(), sum = sums(),
                 logarithm = sums();
    graph_.reduce(CUDNN_REDUCE_TENSOR_MAX, causal, largest);
    graph_.pointwise(CUDNN_POINTWISE_SUB, causal, largest, shifted);
    graph_.pointwise(CUDNN_POINTWISE_EXP, shifted, exponentials);
    graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, exponentials, sum);
    graph_.pointwise(CUDNN_POINTWISE_LOG, sum, logarithm);
    graph_.pointwise(CUDNN_POINTWISE_ADD, largest, logarithm, statistics);
    const Tensor probabilities = graph_.between(layout_.scores, kBf16);
    graph_.pointwise(CUDNN_POINTWISE_DIV, exponentials, sum, probabilities);
    graph_.matmul(probabilities, value, out);
    return std::move(graph_);
  }

  // Deterministic: the gradient of the scores is kept in the workspace, and the query's gradient is a matmul
  // of that. cuDNN's other form adds up the query's gradient by atomic additions, in fp32 and then rounded.
  Graph backward() {
    const Tensor query = graph_.memory(kQuery, layout_.packed, kBf16);
    const Tensor key = graph_.memory(kKey, layout_.packed.transposed(), kBf16);
    const Tensor value = graph_.memory(kValue, layout_.packed.transposed(), kBf16);
    const Tensor out = graph_.memory(kOut, layout_.rows, kBf16);
    const Tensor d_out = graph_.memory(kOutGradient, layout_.rows, kBf16);
    const Tensor statistics = graph_.memory(kStatistics, layout_.statistics, kFp32);
    const Tensor d_query = graph_.memory(kQueryGradient, layout_.packed, kBf16);
    const Tensor d_key = graph_.memory(kKeyGradient, layout_.packed, kBf16);
    const Tensor d_value = graph_.memory(kValueGradient, layout_.packed, kBf16);
    const Tensor scale = graph_.number(kScale);

    // The softmax's backward subtracts from each row its sum of out * d_out.
    const Tensor weighted = graph_.between(layout_.rows, kFp32), row_sum = sums();
    const Tensor row_sums = graph_.memory(kRowSums, layout_.statistics, kFp32);
    graph_.pointwise(CUDNN_POINTWISE_MUL, d_out, out, weighted);
    graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, weighted, row_sum);
    graph_.pointwise(CUDNN_POINTWISE_MUL, row_sum, graph_.number(kOne), row_sums);

    const Tensor matmuls = scores(), scaled = scores(), logarithms = scores(), probabilities = scores();
    graph_.matmul(query, key, matmuls);
    graph_.pointwise(CUDNN_POINTWISE_MUL, matmuls, scale, scaled);
    graph_.pointwise(CUDNN_POINTWISE_SUB, scaled, statistics, logarithms);
    const Tensor causal = causal_scores(logarithms);
    graph_.pointwise(CUDNN_POINTWISE_EXP, causal, probabilities);
    graph_.matmul(transposed(probabilities), d_out, d_value);

    const Tensor d_probabilities = scores(), centered = scores(), d_softmax = scores();
    const Tensor d_scores = graph_.between(layout_.scores, kBf16);
    graph_.matmul(d_out, value, d_probabilities);
    graph_.pointwise(CUDNN_POINTWISE_SUB, d_probabilities, row_sums, centered);
    graph_.pointwise(CUDNN_POINTWISE_MUL, centered, probabilities, d_softmax);
    graph_.pointwise(CUDNN_POINTWISE_MUL, d_softmax, scale, d_scores);
    graph_.matmul(transposed(d_scores), query, d_key);

    const Tensor key_rows = graph_.between(layout_.packed, kBf16);
    graph_.reshape(key, key_rows);
    graph_.matmul(d_scores, key_rows, d_query);
    return std::move(graph_);
  }

 private:
  Tensor scores() { return graph_.between(layout_.scores, kFp32); }
  Tensor sums() { return graph_.between(layout_.statistics, kFp32); }

  Tensor transposed(Tensor scores) {
    TensorLayout layout = layout_.scores;
    std::swap(layout.strides[2], layout.strides[3]);
    const Tensor turned = graph_.between(layout, kBf16);
    graph_.reshape(scores, turned);
    return turned;
  }

  // A position attends to itself and earlier ones.
  Tensor causal_scores(Tensor scored) {
    const Tensor row = graph_.between(layout_.scores, CUDNN_DATA_INT32);
    const Tensor column = graph_.between(layout_.scores, CUDNN_DATA_INT32);
    const Tensor seen = graph_.between(layout_.scores, CUDNN_DATA_BOOLEAN);
    const Tensor causal = scores();
    graph_.index(scored, 2, row);
    graph_.index(scored, 3, column);
    graph_.pointwise(CUDNN_POINTWISE_CMP_GE, row, column, seen, CUDNN_DATA_BOOLEAN);
    graph_.select(seen, scored, graph_.number(kMasked), causal);
    return causal;
  }

  Layouts layout_;
  Graph graph_;
};

// "", or the reason why cuDNN cannot compute this shape, in cases that cuDNN itself does not report.
std::string objection_to(const CudnnPlanner& planner, const AttentionSizes& shape) {
  const std::size_t version = planner.cudnn().get_version();
  if (planner.device().compute_capability >= 100)
    return "on this GPU its attention is deterministic only with settings of its own";
  if (shape.positions % 128 != 0 && version <= 91500)
    return "up to 9.15 it needs a number of positions that 128 divides, not " +
           std::to_string(shape.positions);
  return "";
}

// cuDNN takes all memory as void*, also memory that it only reads.
std::pair<std::int64_t, void*> argument(AttentionUid uid, const void* memory, std::int64_t bytes = 0) {
  return {uid, static_cast<char*>(const_cast<void*>(memory)) + bytes};
}

// The bytes of the row sums, which lie in front of cuDNN's own workspace, and end at its alignment.
std::int64_t row_sum_bytes(const AttentionSizes& shape) {
  constexpr std::int64_t kAlignment = 256;
  const std::int64_t bytes = shape.rows() * shape.heads * static_cast<std::int64_t>(sizeof(float));
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Result<AttentionGraphs> AttentionGraphs::plan(CudnnPlanner& planner, const AttentionSizes& shape) {
  const std::string against = objection_to(planner, shape);
  if (!against.empty())
    return Status(kExitUnavailable, "cuDNN " + planner.cudnn().version + " does no " +
                                        attention_title(shape, "") + ": " + against);
  // Both masks give a probability of 0; before 9.10 its kernels expected the finite one.
  const float masked = planner.cudnn().get_version() >= 91000 ? -std::numeric_limits<float>::infinity()
                                                              : std::numeric_limits<float>::lowest();
  try {
    CudnnPlan forward = planner.plan(AttentionGraph(planner.cudnn(), shape, "forward").forward(), {});
    // No rule: cuDNN does not tell whether attention's engines are deterministic; the graph ensures it.
    CudnnPlan backward = planner.plan(AttentionGraph(planner.cudnn(), shape, "backward").backward(), {});
    return AttentionGraphs(shape, masked, std::move(forward), std::move(backward));
  } catch (const CudnnRefusal& refusal) {
    return Status(kExitUnavailable, refusal.what());
  }
}

void AttentionGraphs::forward(cudnnHandle_t handle, const void* qkv, void* out, void* statistics,
                              void* workspace) const {
  const std::int64_t part = 2 * shape_.width();  // bytes of a query
  const float scale = 1 / std::sqrt(static_cast<float>(shape_.head_size));
  forward_.execute(
      handle,
      {argument(kQuery, qkv), argument(kKey, qkv, part), argument(kValue, qkv, 2 * part), argument(kOut, out),
       argument(kStatistics, statistics), argument(kScale, &scale), argument(kMasked, &masked_)},
      workspace);
}

void AttentionGraphs::backward(cudnnHandle_t handle, const void* qkv, const void* out, const void* d_out,
                               const void* statistics, void* d_qkv, void* workspace) const {
  const std::int64_t part = 2 * shape_.width();
  const float scale = 1 / std::sqrt(static_cast<float>(shape_.head_size)), one = 1;
  backward_.execute(handle,
                    {argument(kQuery, qkv), argument(kKey, qkv, part), argument(kValue, qkv, 2 * part),
                     argument(kOut, out), argument(kOutGradient, d_out), argument(kStatistics, statistics),
                     argument(kQueryGradient, d_qkv), argument(kKeyGradient, d_qkv, part),
                     argument(kValueGradient, d_qkv, 2 * part), argument(kRowSums, workspace),
                     argument(kScale, &scale), argument(kMasked, &masked_), argument(kOne, &one)},
                    static_cast<char*>(workspace) + row_sum_bytes(shape_));
}

std::int64_t AttentionGraphs::backward_workspace() const {
  return row_sum_bytes(shape_) + backward_.workspace_size();
}

}  // namespace dtrun::worker::cuda
