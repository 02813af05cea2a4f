// The part of an operation's backward that does not depend on its kind.
#include "worker/device/cpu/onednn/op.h"

#include "worker/device/cpu/onednn/compat.h"

namespace dtrun::worker::onednn {

dnnl::memory OnednnOp::through_relu(const dnnl::memory& out_gradient) {
  if (!operation_.relu) return out_gradient;
  const Desc format = out_.get_desc();
  dnnl::memory passed = in_format(engine_, out_gradient, format, backward);
  const auto relu = relu_backward(engine_, format, relu_forward(engine_, format));
  backward.push_back({dnnl::eltwise_backward(relu),
                      {{DNNL_ARG_DST, out_}, {DNNL_ARG_DIFF_DST, passed}, {DNNL_ARG_DIFF_SRC, passed}}});
  return passed;
}

}  // namespace dtrun::worker::onednn
