// Creates oneDNN's primitive descriptors. oneDNN 3 dropped the operation descriptors of 2.x; all code that
// depends on the version is here and in compat.cc. Everything but matmul is fp32, stride 1 for convolutions,
// stride = kernel for pools, no padding, and scratchpads are the primitive's own.
#pragma once

#include <dnnl.hpp>

namespace dtrun::worker::onednn {

using Desc = dnnl::memory::desc;

// relu: applied to the output.
dnnl::convolution_forward::primitive_desc conv_forward(const dnnl::engine&, const Desc& in,
                                                       const Desc& weight, const Desc& bias, const Desc& out,
                                                       bool relu);
dnnl::convolution_backward_data::primitive_desc conv_backward_data(
    const dnnl::engine&, const Desc& in_gradient, const Desc& weight, const Desc& out_gradient,
    const dnnl::convolution_forward::primitive_desc& forward);
dnnl::convolution_backward_weights::primitive_desc conv_backward_weights(
    const dnnl::engine&, const Desc& in, const Desc& weight_gradient, const Desc& bias_gradient,
    const Desc& out_gradient, const dnnl::convolution_forward::primitive_desc& forward);

dnnl::inner_product_forward::primitive_desc linear_forward(const dnnl::engine&, const Desc& in,
                                                           const Desc& weight, const Desc& bias,
                                                           const Desc& out, bool relu);
dnnl::inner_product_backward_data::primitive_desc linear_backward_data(
    const dnnl::engine&, const Desc& in_gradient, const Desc& weight, const Desc& out_gradient,
    const dnnl::inner_product_forward::primitive_desc& forward);
dnnl::inner_product_backward_weights::primitive_desc linear_backward_weights(
    const dnnl::engine&, const Desc& in, const Desc& weight_gradient, const Desc& bias_gradient,
    const Desc& out_gradient, const dnnl::inner_product_forward::primitive_desc& forward);

dnnl::pooling_forward::primitive_desc pool_forward(const dnnl::engine&, const Desc& in, const Desc& out,
                                                   int kernel);
dnnl::pooling_backward::primitive_desc pool_backward(const dnnl::engine&, const Desc& in_gradient,
                                                     const Desc& out_gradient, int kernel,
                                                     const dnnl::pooling_forward::primitive_desc& forward);

// A ReLU in place, of values that are laid out as `data`. Backward needs only the ReLU's output.
dnnl::eltwise_forward::primitive_desc relu_forward(const dnnl::engine&, const Desc& data);
dnnl::eltwise_backward::primitive_desc relu_backward(const dnnl::engine&, const Desc& data,
                                                     const dnnl::eltwise_forward::primitive_desc& forward);

// out = scale * left right + bias, or + out where `add`; only one of scale, bias and add is used. bias may be
// empty. The scratchpad is the caller's.
dnnl::matmul::primitive_desc matmul(const dnnl::engine&, const Desc& left, const Desc& right,
                                    const Desc& bias, const Desc& out, float scale, bool add);

dnnl::memory::dims dimensions(const Desc&);

// A descriptor that names no format, so that the primitive may choose.
Desc any_format(const Desc& like);

}  // namespace dtrun::worker::onednn
