// The 3.x and the 2.x spelling, one after the other.
#include "worker/device/cpu/onednn/compat.h"

namespace dtrun::worker::onednn {
namespace {

void append_scale(dnnl::post_ops& ops, float scale) {
#if DNNL_VERSION_MAJOR >= 3
  ops.append_eltwise(dnnl::algorithm::eltwise_linear, scale, 0.0f);
#else
  ops.append_eltwise(1.0f, dnnl::algorithm::eltwise_linear, scale, 0.0f);
#endif
}

dnnl::primitive_attr attributes(float scale, bool add) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops ops;
  if (scale != 1) append_scale(ops, scale);
  if (add) ops.append_sum(1.0f);
  attributes.set_post_ops(ops);
  return attributes;
}

}  // namespace

dnnl::matmul::primitive_desc matmul(const dnnl::engine& engine, const Desc& left, const Desc& right,
                                    const Desc& bias, const Desc& out, float scale, bool add) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, left, right, bias, out, attributes(scale, add)};
#else
  return {{left, right, bias, out}, attributes(scale, add), engine};
#endif
}

}  // namespace dtrun::worker::onednn
