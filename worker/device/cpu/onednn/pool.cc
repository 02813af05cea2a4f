// Max-pooling by oneDNN. oneDNN's pooling has no ReLU, so a ReLU that follows is a call in place.
#include "worker/device/cpu/onednn/compat.h"
#include "worker/device/cpu/onednn/op.h"

namespace dtrun::worker::onednn {
namespace {

class PoolOp : public OnednnOp {
 public:
  PoolOp(const dnnl::engine& engine, const Operation& operation, int rows, int kernel)
      : OnednnOp(engine, operation), rows_(rows), kernel_(kernel) {}

  dnnl::memory build_forward(const dnnl::memory& in) override {
    const SampleShape& shape = operation_.out;
    const Desc out({rows_, shape.channels, shape.height, shape.width}, dnnl::memory::data_type::f32,
                   dnnl::memory::format_tag::any);
    in_format_ = in.get_desc();
    plan_ = pool_forward(engine_, in_format_, out, kernel_);
    out_ = dnnl::memory(plan_.dst_desc(), engine_);
    winners_ = dnnl::memory(plan_.workspace_desc(), engine_);
    forward.push_back({dnnl::pooling_forward(plan_),
                       {{DNNL_ARG_SRC, in}, {DNNL_ARG_DST, out_}, {DNNL_ARG_WORKSPACE, winners_}}});
    if (operation_.relu)
      forward.push_back({dnnl::eltwise_forward(relu_forward(engine_, out_.get_desc())),
                         {{DNNL_ARG_SRC, out_}, {DNNL_ARG_DST, out_}}});
    return out_;
  }

  dnnl::memory build_backward(const dnnl::memory& out_gradient) override {
    if (!operation_.needs_in_gradient) return {};
    const dnnl::memory passed = in_format(engine_, through_relu(out_gradient), out_.get_desc(), backward);
    const auto plan = pool_backward(engine_, in_format_, passed.get_desc(), kernel_, plan_);
    dnnl::memory to(plan.diff_src_desc(), engine_);
    backward.push_back(
        {dnnl::pooling_backward(plan),
         {{DNNL_ARG_DIFF_DST, passed}, {DNNL_ARG_WORKSPACE, winners_}, {DNNL_ARG_DIFF_SRC, to}}});
    return to;
  }

 private:
  const int rows_, kernel_;
  Desc in_format_;
  dnnl::pooling_forward::primitive_desc plan_;
  dnnl::memory winners_;  // the largest element of each window
};

}  // namespace

std::unique_ptr<OnednnOp> make_pool(const dnnl::engine& engine, const Operation& operation, int rows,
                                    const MaxPool2d& pool) {
  return std::make_unique<PoolOp>(engine, operation, rows, pool.kernel);
}

}  // namespace dtrun::worker::onednn
