#include "worker/device/cuda/cudnn/graph.h"

#include <cstdio>
#include <utility>

namespace dtrun::worker::cuda {

TensorLayout TensorLayout::dense(std::vector<std::int64_t> sizes) {
  TensorLayout layout{.sizes = std::move(sizes), .strides = {}};
  layout.strides.resize(layout.sizes.size());
  std::int64_t stride = 1;
  for (std::size_t i = layout.sizes.size(); i-- > 0;) {
    layout.strides[i] = stride;
    stride *= layout.sizes[i];
  }
  return layout;
}

TensorLayout TensorLayout::transposed() const {
  TensorLayout layout = *this;
  const std::size_t last = sizes.size() - 1;
  std::swap(layout.sizes[last - 1], layout.sizes[last]);
  std::swap(layout.strides[last - 1], layout.strides[last]);
  return layout;
}

Graph::Graph(const Cudnn& cudnn, std::string name) : cudnn_(cudnn), name_(std::move(name)) {}

Graph::Tensor Graph::memory(std::int64_t uid, const TensorLayout& layout, cudnnDataType_t type) {
  return add_tensor(uid, layout, type, false, false);
}

Graph::Tensor Graph::number(std::int64_t uid) {
  return add_tensor(uid, TensorLayout::dense({1, 1, 1, 1}), CUDNN_DATA_FLOAT, false, true);
}

Graph::Tensor Graph::between(const TensorLayout& layout, cudnnDataType_t type) {
  return add_tensor(next_uid_++, layout, type, true, false);
}

Graph::Tensor Graph::add_tensor(std::int64_t uid, const TensorLayout& layout, cudnnDataType_t type,
                                bool is_between, bool by_value) {
  constexpr std::int64_t kAlignment = 16;
  Descriptor tensor(cudnn_, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, uid)
      .set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, layout.sizes)
      .set(CUDNN_ATTR_TENSOR_STRIDES, layout.strides)
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, is_between);
  if (by_value) tensor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
  tensors_.push_back(std::move(tensor.finalize()));
  said_ += "tensor " + std::to_string(uid) + " type " + std::to_string(type) +
           (is_between ? " between" : "") + (by_value ? " by value" : "");
  for (const std::int64_t size : layout.sizes) said_ += " " + std::to_string(size);
  for (const std::int64_t stride : layout.strides) said_ += " " + std::to_string(stride);
  said_ += "\n";
  return Tensor{tensors_.size() - 1};
}

Descriptor Graph::operation(cudnnBackendDescriptorType_t type, const std::string& what, TensorRoles tensors) {
  Descriptor made(cudnn_, type);
  said_ += "operation " + std::to_string(type) + " " + what;
  for (const auto& [attribute, tensor] : tensors) {
    const auto index = static_cast<std::size_t>(tensor);
    made.set(attribute, tensors_[index]);
    said_ += " " + std::to_string(index);
  }
  said_ += "\n";
  return made;
}

void Graph::add_pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t precision, std::int64_t axis,
                          TensorRoles tensors) {
  Descriptor how(cudnn_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  how.set(CUDNN_ATTR_POINTWISE_MODE, mode).set(CUDNN_ATTR_POINTWISE_MATH_PREC, precision);
  if (mode == CUDNN_POINTWISE_GEN_INDEX) how.set(CUDNN_ATTR_POINTWISE_AXIS, axis);
  how.finalize();
  const std::string what =
      std::to_string(mode) + " in " + std::to_string(precision) + " along " + std::to_string(axis);
  Descriptor made = operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, what, tensors);
  made.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  add(std::move(made));
}

void Graph::pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor y) {
  add_pointwise(mode, CUDNN_DATA_FLOAT, -1,
                {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x}, {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y}});
}

void Graph::pointwise(cudnnPointwiseMode_t mode, Tensor a, Tensor b, Tensor y, cudnnDataType_t precision) {
  add_pointwise(mode, precision, -1,
                {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, a},
                 {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b},
                 {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y}});
}

void Graph::select(Tensor condition, Tensor yes, Tensor no, Tensor y) {
  add_pointwise(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1,
                {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, yes},
                 {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, no},
                 {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, condition},
                 {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y}});
}

void Graph::index(Tensor like, std::int64_t dimension, Tensor y) {
  add_pointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, dimension,
                {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, like}, {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y}});
}

void Graph::matmul(Tensor a, Tensor b, Tensor c) {
  Descriptor how(cudnn_, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT).finalize();
  Descriptor made = operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "",
                              {{CUDNN_ATTR_OPERATION_MATMUL_ADESC, a},
                               {CUDNN_ATTR_OPERATION_MATMUL_BDESC, b},
                               {CUDNN_ATTR_OPERATION_MATMUL_CDESC, c}});
  made.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
  add(std::move(made));
}

void Graph::reduce(cudnnReduceTensorOp_t how, Tensor x, Tensor y) {
  Descriptor reduction(cudnn_, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  reduction.set(CUDNN_ATTR_REDUCTION_OPERATOR, how)
      .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .finalize();
  Descriptor made =
      operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, std::to_string(how),
                {{CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x}, {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y}});
  made.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduction);
  add(std::move(made));
}

void Graph::reshape(Tensor x, Tensor y) {
  add(operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, "",
                {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x}, {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y}}));
}

Descriptor Graph::convolution(ConvMoves moves) {
  const std::vector<std::int64_t> ones{1, 1}, strides(2, moves.stride), paddings(2, moves.padding);
  said_ += "stride " + std::to_string(moves.stride) + " padding " + std::to_string(moves.padding) + "\n";
  Descriptor how(cudnn_, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  how.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2})
      .set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, paddings)
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, paddings)
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, ones)
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, strides)
      .finalize();
  return how;
}

void Graph::conv_forward(Tensor x, Tensor w, Tensor y, ConvMoves moves) {
  const Descriptor how = convolution(moves);
  Descriptor made = operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, "",
                              {{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x},
                               {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w},
                               {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y}});
  made.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.0)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, how);
  add(std::move(made));
}

void Graph::conv_input_gradient(Tensor dy, Tensor w, Tensor dx, ConvMoves moves) {
  const Descriptor how = convolution(moves);
  Descriptor made = operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, "",
                              {{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, dy},
                               {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, w},
                               {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, dx}});
  made.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 1.0)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 0.0)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, how);
  add(std::move(made));
}

void Graph::conv_weight_gradient(Tensor x, Tensor dy, Tensor dw, ConvMoves moves) {
  const Descriptor how = convolution(moves);
  Descriptor made = operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, "",
                              {{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, x},
                               {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, dy},
                               {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, dw}});
  made.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 1.0)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 0.0)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, how);
  add(std::move(made));
}

Descriptor Graph::finish(cudnnHandle_t handle) const {
  Descriptor graph(cudnn_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations_);
  if (handle != nullptr) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  graph.finalize();
  return graph;
}

std::string Graph::identity() const {
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const char c : said_) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return name_ + " " + digits;
}

}  // namespace dtrun::worker::cuda
