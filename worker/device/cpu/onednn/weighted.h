// The common part of convolution and linear: weight and bias, and three primitives over them.
#pragma once

#include <utility>

#include "worker/device/cpu/onednn/compat.h"
#include "worker/device/cpu/onednn/op.h"

namespace dtrun::worker::onednn {

// Traits: types Forward, BackwardData, BackwardWeights and functions forward, backward_data, backward_weights
// (those of compat.h).
template <typename Traits>
class WeightedOp : public OnednnOp {
 public:
  // out: dimensions of the output.
  WeightedOp(const dnnl::engine& engine, const Operation& operation, const Parameter& parameter,
             dnnl::memory::dims out, ParameterMemory weight, ParameterMemory bias)
      : OnednnOp(engine, operation),
        parameter_(parameter),
        out_dims_(std::move(out)),
        weight_(std::move(weight)),
        bias_(std::move(bias)) {}

  const Parameter* first_parameter() const override { return &parameter_; }

  dnnl::memory build_forward(const dnnl::memory& in) override {
    const Desc out(out_dims_, dnnl::memory::data_type::f32, dnnl::memory::format_tag::any);
    plan_ = Traits::forward(engine_, any_format(in.get_desc()), any_format(weight_.value.get_desc()),
                            bias_.value.get_desc(), out, operation_.relu);
    in_ = in_format(engine_, in, plan_.src_desc(), forward);
    in_given_ = in.get_desc();
    const dnnl::memory weight = in_format(engine_, weight_.value, plan_.weights_desc(), load);
    out_ = dnnl::memory(plan_.dst_desc(), engine_);
    forward.push_back({typename Traits::Forward(plan_),
                       {{DNNL_ARG_SRC, in_},
                        {DNNL_ARG_WEIGHTS, weight},
                        {DNNL_ARG_BIAS, bias_.value},
                        {DNNL_ARG_DST, out_}}});
    return out_;
  }

  dnnl::memory build_backward(const dnnl::memory& out_gradient) override {
    const dnnl::memory gradient = through_relu(out_gradient);
    build_weight_gradient(gradient);
    return operation_.needs_in_gradient ? build_in_gradient(gradient) : dnnl::memory();
  }

 private:
  void build_weight_gradient(const dnnl::memory& gradient) {
    const auto plan =
        Traits::backward_weights(engine_, any_format(in_.get_desc()), any_format(weight_.value.get_desc()),
                                 bias_.value.get_desc(), any_format(gradient.get_desc()), plan_);
    const dnnl::memory in = in_format(engine_, in_, plan.src_desc(), backward);
    const dnnl::memory from = in_format(engine_, gradient, plan.diff_dst_desc(), backward);
    const bool plain = plan.diff_weights_desc() == weight_.gradient.get_desc();
    const dnnl::memory weight = plain ? weight_.gradient : dnnl::memory(plan.diff_weights_desc(), engine_);
    backward.push_back({typename Traits::BackwardWeights(plan),
                        {{DNNL_ARG_SRC, in},
                         {DNNL_ARG_DIFF_DST, from},
                         {DNNL_ARG_DIFF_WEIGHTS, weight},
                         {DNNL_ARG_DIFF_BIAS, bias_.gradient}}});
    if (!plain)
      backward.push_back({dnnl::reorder(weight, weight_.gradient),
                          {{DNNL_ARG_FROM, weight}, {DNNL_ARG_TO, weight_.gradient}}});
  }

  dnnl::memory build_in_gradient(const dnnl::memory& gradient) {
    const auto plan =
        Traits::backward_data(engine_, any_format(in_given_), any_format(weight_.value.get_desc()),
                              any_format(gradient.get_desc()), plan_);
    const dnnl::memory weight = in_format(engine_, weight_.value, plan.weights_desc(), load);
    const dnnl::memory from = in_format(engine_, gradient, plan.diff_dst_desc(), backward);
    dnnl::memory to(plan.diff_src_desc(), engine_);
    backward.push_back({typename Traits::BackwardData(plan),
                        {{DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_DIFF_DST, from}, {DNNL_ARG_DIFF_SRC, to}}});
    return to;
  }

  const Parameter& parameter_;
  const dnnl::memory::dims out_dims_;
  const ParameterMemory weight_, bias_;
  typename Traits::Forward::primitive_desc plan_;
  dnnl::memory in_;
  Desc in_given_;
};

}  // namespace dtrun::worker::onednn
