// The 3.x and the 2.x spelling of each descriptor, one after the other.
#include "worker/device/cpu/onednn/compat.h"

namespace dtrun::worker::onednn {
namespace {

using dnnl::algorithm;
using dnnl::prop_kind;

constexpr auto kTraining = prop_kind::forward_training;
constexpr auto kRelu = algorithm::eltwise_relu_use_dst_for_bwd;
const dnnl::memory::dims kOnes{1, 1}, kNone{0, 0};

#if DNNL_VERSION_MAJOR >= 3

void append_relu(dnnl::post_ops& ops) { ops.append_eltwise(algorithm::eltwise_relu, 0.0f, 0.0f); }
void append_scale(dnnl::post_ops& ops, float scale) {
  ops.append_eltwise(algorithm::eltwise_linear, scale, 0.0f);
}

#else

void append_relu(dnnl::post_ops& ops) { ops.append_eltwise(1.0f, algorithm::eltwise_relu, 0.0f, 0.0f); }
void append_scale(dnnl::post_ops& ops, float scale) {
  ops.append_eltwise(1.0f, algorithm::eltwise_linear, scale, 0.0f);
}

#endif

dnnl::primitive_attr attributes(bool relu) {
  dnnl::primitive_attr attributes;
  if (!relu) return attributes;
  dnnl::post_ops ops;
  append_relu(ops);
  attributes.set_post_ops(ops);
  return attributes;
}

dnnl::primitive_attr matmul_attributes(float scale, bool add) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops ops;
  if (scale != 1) append_scale(ops, scale);
  if (add) ops.append_sum(1.0f);
  attributes.set_post_ops(ops);
  return attributes;
}

}  // namespace

Desc any_format(const Desc& like) {
  return {dimensions(like), dnnl::memory::data_type::f32, dnnl::memory::format_tag::any};
}

#if DNNL_VERSION_MAJOR >= 3

dnnl::memory::dims dimensions(const Desc& desc) { return desc.get_dims(); }

dnnl::convolution_forward::primitive_desc conv_forward(const dnnl::engine& engine, const Desc& in,
                                                       const Desc& weight, const Desc& bias, const Desc& out,
                                                       bool relu) {
  return {engine, kTraining,       algorithm::convolution_direct, in, weight, bias, out, kOnes, kNone,
          kNone,  attributes(relu)};
}

dnnl::convolution_backward_data::primitive_desc conv_backward_data(
    const dnnl::engine& engine, const Desc& in_gradient, const Desc& weight, const Desc& out_gradient,
    const dnnl::convolution_forward::primitive_desc& forward) {
  return {engine, algorithm::convolution_direct, in_gradient, weight, out_gradient, kOnes, kNone, kNone,
          forward};
}

dnnl::convolution_backward_weights::primitive_desc conv_backward_weights(
    const dnnl::engine& engine, const Desc& in, const Desc& weight_gradient, const Desc& bias_gradient,
    const Desc& out_gradient, const dnnl::convolution_forward::primitive_desc& forward) {
  return {engine,
          algorithm::convolution_direct,
          in,
          weight_gradient,
          bias_gradient,
          out_gradient,
          kOnes,
          kNone,
          kNone,
          forward};
}

dnnl::inner_product_forward::primitive_desc linear_forward(const dnnl::engine& engine, const Desc& in,
                                                           const Desc& weight, const Desc& bias,
                                                           const Desc& out, bool relu) {
  return {engine, kTraining, in, weight, bias, out, attributes(relu)};
}

dnnl::inner_product_backward_data::primitive_desc linear_backward_data(
    const dnnl::engine& engine, const Desc& in_gradient, const Desc& weight, const Desc& out_gradient,
    const dnnl::inner_product_forward::primitive_desc& forward) {
  return {engine, in_gradient, weight, out_gradient, forward};
}

dnnl::inner_product_backward_weights::primitive_desc linear_backward_weights(
    const dnnl::engine& engine, const Desc& in, const Desc& weight_gradient, const Desc& bias_gradient,
    const Desc& out_gradient, const dnnl::inner_product_forward::primitive_desc& forward) {
  return {engine, in, weight_gradient, bias_gradient, out_gradient, forward};
}

dnnl::pooling_forward::primitive_desc pool_forward(const dnnl::engine& engine, const Desc& in,
                                                   const Desc& out, int kernel) {
  const dnnl::memory::dims window{kernel, kernel};
  return {engine, kTraining, algorithm::pooling_max, in, out, window, window, kNone, kNone, kNone};
}

dnnl::pooling_backward::primitive_desc pool_backward(const dnnl::engine& engine, const Desc& in_gradient,
                                                     const Desc& out_gradient, int kernel,
                                                     const dnnl::pooling_forward::primitive_desc& forward) {
  const dnnl::memory::dims window{kernel, kernel};
  return {engine, algorithm::pooling_max, in_gradient, out_gradient, window, window, kNone, kNone, kNone,
          forward};
}

dnnl::eltwise_forward::primitive_desc relu_forward(const dnnl::engine& engine, const Desc& data) {
  return {engine, kTraining, kRelu, data, data, 0.0f, 0.0f};
}

dnnl::eltwise_backward::primitive_desc relu_backward(const dnnl::engine& engine, const Desc& data,
                                                     const dnnl::eltwise_forward::primitive_desc& forward) {
  return {engine, kRelu, data, data, data, 0.0f, 0.0f, forward};
}

dnnl::matmul::primitive_desc matmul(const dnnl::engine& engine, const Desc& left, const Desc& right,
                                    const Desc& bias, const Desc& out, float scale, bool add) {
  return {engine, left, right, bias, out, matmul_attributes(scale, add)};
}

#else

dnnl::memory::dims dimensions(const Desc& desc) { return desc.dims(); }

dnnl::convolution_forward::primitive_desc conv_forward(const dnnl::engine& engine, const Desc& in,
                                                       const Desc& weight, const Desc& bias, const Desc& out,
                                                       bool relu) {
  return {{kTraining, algorithm::convolution_direct, in, weight, bias, out, kOnes, kNone, kNone},
          attributes(relu),
          engine};
}

dnnl::convolution_backward_data::primitive_desc conv_backward_data(
    const dnnl::engine& engine, const Desc& in_gradient, const Desc& weight, const Desc& out_gradient,
    const dnnl::convolution_forward::primitive_desc& forward) {
  return {{algorithm::convolution_direct, in_gradient, weight, out_gradient, kOnes, kNone, kNone},
          engine,
          forward};
}

dnnl::convolution_backward_weights::primitive_desc conv_backward_weights(
    const dnnl::engine& engine, const Desc& in, const Desc& weight_gradient, const Desc& bias_gradient,
    const Desc& out_gradient, const dnnl::convolution_forward::primitive_desc& forward) {
  return {
      {algorithm::convolution_direct, in, weight_gradient, bias_gradient, out_gradient, kOnes, kNone, kNone},
      engine,
      forward};
}

dnnl::inner_product_forward::primitive_desc linear_forward(const dnnl::engine& engine, const Desc& in,
                                                           const Desc& weight, const Desc& bias,
                                                           const Desc& out, bool relu) {
  return {{kTraining, in, weight, bias, out}, attributes(relu), engine};
}

dnnl::inner_product_backward_data::primitive_desc linear_backward_data(
    const dnnl::engine& engine, const Desc& in_gradient, const Desc& weight, const Desc& out_gradient,
    const dnnl::inner_product_forward::primitive_desc& forward) {
  return {{in_gradient, weight, out_gradient}, engine, forward};
}

dnnl::inner_product_backward_weights::primitive_desc linear_backward_weights(
    const dnnl::engine& engine, const Desc& in, const Desc& weight_gradient, const Desc& bias_gradient,
    const Desc& out_gradient, const dnnl::inner_product_forward::primitive_desc& forward) {
  return {{in, weight_gradient, bias_gradient, out_gradient}, engine, forward};
}

dnnl::pooling_forward::primitive_desc pool_forward(const dnnl::engine& engine, const Desc& in,
                                                   const Desc& out, int kernel) {
  const dnnl::memory::dims window{kernel, kernel};
  return {{kTraining, algorithm::pooling_max, in, out, window, window, kNone, kNone}, engine};
}

dnnl::pooling_backward::primitive_desc pool_backward(const dnnl::engine& engine, const Desc& in_gradient,
                                                     const Desc& out_gradient, int kernel,
                                                     const dnnl::pooling_forward::primitive_desc& forward) {
  const dnnl::memory::dims window{kernel, kernel};
  return {{algorithm::pooling_max, in_gradient, out_gradient, window, window, kNone, kNone}, engine, forward};
}

dnnl::eltwise_forward::primitive_desc relu_forward(const dnnl::engine& engine, const Desc& data) {
  return {{kTraining, kRelu, data, 0.0f, 0.0f}, engine};
}

dnnl::eltwise_backward::primitive_desc relu_backward(const dnnl::engine& engine, const Desc& data,
                                                     const dnnl::eltwise_forward::primitive_desc& forward) {
  return {{kRelu, data, data, 0.0f, 0.0f}, engine, forward};
}

dnnl::matmul::primitive_desc matmul(const dnnl::engine& engine, const Desc& left, const Desc& right,
                                    const Desc& bias, const Desc& out, float scale, bool add) {
  return {{left, right, bias, out}, matmul_attributes(scale, add), engine};
}

#endif

}  // namespace dtrun::worker::onednn
