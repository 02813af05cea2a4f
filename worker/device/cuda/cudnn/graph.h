// A computation for cuDNN, as a graph of its operations over tensors. A tensor is in device memory, or is one
// number that is passed when the graph runs, or connects two operations and is never written out.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "worker/device/cuda/cudnn/descriptor.h"

namespace dtrun::worker::cuda {

// Sizes and distances of elements along each dimension.
struct TensorLayout {
  std::vector<std::int64_t> sizes, strides;

  // Row-major, without gaps.
  static TensorLayout dense(std::vector<std::int64_t> sizes);
  // The same memory with its last two dimensions exchanged.
  TensorLayout transposed() const;
};

// Of a convolution's window; padding: zeros on each side.
struct ConvMoves {
  std::int64_t stride = 1, padding = 0;
};

// Each function throws CudnnRefusal if cuDNN refuses a part of the graph.
class Graph {
 public:
  // A handle of this graph.
  enum class Tensor : std::size_t {};

  // `name` is for people and part of the identity. REQUIRES: `cudnn` outlives the graph.
  Graph(const Cudnn& cudnn, std::string name);

  // uid: the caller's number for passing memory to CudnnPlan::execute; 1 … 99. Memory is aligned to 16 bytes.
  Tensor memory(std::int64_t uid, const TensorLayout& layout, cudnnDataType_t type);
  Tensor number(std::int64_t uid);  // one float
  Tensor between(const TensorLayout& layout, cudnnDataType_t type);

  void pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor y);
  void pointwise(cudnnPointwiseMode_t mode, Tensor a, Tensor b, Tensor y,
                 cudnnDataType_t precision = CUDNN_DATA_FLOAT);
  void select(Tensor condition, Tensor yes, Tensor no, Tensor y);
  void index(Tensor like, std::int64_t dimension, Tensor y);  // each element's index along `dimension`, int32
  void matmul(Tensor a, Tensor b, Tensor c);                  // over the last two dimensions, sums in fp32
  void reduce(cudnnReduceTensorOp_t how, Tensor x, Tensor y);
  void reshape(Tensor x, Tensor y);

  // 2-d cross-correlations, sums in fp32. x [N, C, H, W], w [K, C, R, S], y [N, K, P, Q].
  void conv_forward(Tensor x, Tensor w, Tensor y, ConvMoves moves = {});
  void conv_input_gradient(Tensor dy, Tensor w, Tensor dx, ConvMoves moves = {});
  void conv_weight_gradient(Tensor x, Tensor dy, Tensor dw, ConvMoves moves = {});

  // The graph for cuDNN's planning. `handle`: null if the device is only described.
  Descriptor finish(cudnnHandle_t handle) const;

  const Cudnn& cudnn() const { return cudnn_; }
  const std::string& name() const { return name_; }
  // A hash of the name and all calls above: graphs with the same identity are the same computation.
  std::string identity() const;

 private:
  using TensorRoles = std::initializer_list<std::pair<cudnnBackendAttributeName_t, Tensor>>;

  Descriptor operation(cudnnBackendDescriptorType_t type, const std::string& what, TensorRoles tensors);
  void add_pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t precision, std::int64_t axis,
                     TensorRoles tensors);
  Tensor add_tensor(std::int64_t uid, const TensorLayout& layout, cudnnDataType_t type, bool is_between,
                    bool by_value);
  Descriptor convolution(ConvMoves moves);
  void add(Descriptor operation) { operations_.push_back(std::move(operation.finalize())); }

  const Cudnn& cudnn_;
  std::string name_;
  std::string said_;  // all calls as text
  std::int64_t next_uid_ = 100;
  std::vector<Descriptor> tensors_, operations_;
};

}  // namespace dtrun::worker::cuda
