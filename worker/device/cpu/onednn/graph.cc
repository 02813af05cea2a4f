// Runs a network with oneDNN. All primitives, formats and memory are settled when the graph is built; running
// it allocates nothing and uses the calling thread alone.
#include "worker/device/cpu/graph.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "worker/base/buffer.h"
#include "worker/base/error.h"
#include "worker/device/cpu/lowering.h"
#include "worker/device/cpu/onednn/compat.h"
#include "worker/device/cpu/onednn/matmul.h"
#include "worker/device/cpu/onednn/op.h"

namespace dtrun::worker {
namespace {

using dnnl::memory;

memory::desc plain(const memory::dims& dims) {
  switch (dims.size()) {
    case 1:
      return {dims, memory::data_type::f32, memory::format_tag::a};
    case 2:
      return {dims, memory::data_type::f32, memory::format_tag::ab};
    default:
      return {dims, memory::data_type::f32, memory::format_tag::abcd};
  }
}

class OnednnGraph : public CpuGraph {
 public:
  OnednnGraph(const Program& program, int rows, NodeClock clock)
      : program_(program),
        lowered_(lower(program_)),
        clock_(std::move(clock)),
        rows_(rows),
        gradient_(program.size),
        input_(rows * program.sample.shape.size()),
        logits_(rows * lowered_.classes),
        logit_gradient_(rows * lowered_.classes) {
    build();
  }

  void parameters_changed(const float* weights) override {
    for (auto& [memory, offset] : weights_) {
      // oneDNN has no const memory, but no call here writes to the weights.
      memory.set_data_handle(const_cast<float*>(weights + offset));
    }
    for (const auto& op : ops_) run(op->load);
    stream_.wait();
    diverged_ = std::any_of(weights, weights + program_.size, [](float value) { return std::isnan(value); });
  }

  std::span<const float> forward(const float* x, int samples) override {
    const std::size_t real = samples * program_.sample.shape.size();
    std::copy(x, x + real, input_.data());
    std::fill(input_.data() + real, input_.data() + input_.size(), 0.0f);
    if (lowered_.input_relu) {
      for (std::size_t i = 0; i < real; ++i) input_.data()[i] = input_.data()[i] < 0 ? 0 : input_.data()[i];
    }
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      clock_.time(lowered_.operations[i].node, false, [&] { run(ops_[i]->forward); });
    }
    run(to_logits_);
    stream_.wait();
    if (diverged_) std::fill_n(logits_.data(), logits_.size(), std::numeric_limits<float>::quiet_NaN());
    return {logits_.data(), logits_.size()};
  }

  void backward(const float* logit_gradient, float* gradient,
                const std::function<void(std::size_t offset)>& final_from) override {
    std::copy(logit_gradient, logit_gradient + logit_gradient_.size(), logit_gradient_.data());
    std::size_t end = program_.size;
    for (auto op = ops_.rbegin(); op != ops_.rend(); ++op) {
      const auto index = static_cast<std::size_t>(ops_.rend() - op) - 1;
      clock_.time(lowered_.operations[index].node, true, [&] { run((*op)->backward); });
      const Parameter* first = (*op)->first_parameter();
      if (!first) continue;
      stream_.wait();
      std::copy(gradient_.data() + first->offset, gradient_.data() + end, gradient + first->offset);
      end = first->offset;
      final_from(end);
    }
  }

 private:
  void run(const std::vector<onednn::PrimitiveCall>& calls) try {
    for (const onednn::PrimitiveCall& call : calls) call.run(stream_);
  } catch (const dnnl::error& error) {
    throw WorkerError(kExitSoftware, std::string("oneDNN failed while computing: ") + error.what());
  }

  void build() {
    const SampleShape& in = program_.sample.shape;
    memory value(plain({rows_, in.channels, in.height, in.width}), engine_, input_.data());
    for (const Operation& operation : lowered_.operations) {
      ops_.push_back(make_op(operation, value.get_desc()));
      value = ops_.back()->build_forward(value);
    }
    const memory::desc logits = plain({rows_, static_cast<memory::dim>(lowered_.classes)});
    const memory result(logits, engine_, logits_.data());
    to_logits_.push_back({dnnl::reorder(value, result), {{DNNL_ARG_FROM, value}, {DNNL_ARG_TO, result}}});
    memory gradient(logits, engine_, logit_gradient_.data());
    for (auto op = ops_.rbegin(); op != ops_.rend(); ++op) gradient = (*op)->build_backward(gradient);
  }

  std::unique_ptr<onednn::OnednnOp> make_op(const Operation& operation, const memory::desc& in) {
    return std::visit(
        [&](const auto& layer) -> std::unique_ptr<onednn::OnednnOp> {
          using L = std::decay_t<decltype(layer)>;
          if constexpr (std::is_same_v<L, Conv2d>)
            return onednn::make_conv(engine_, operation, rows_, program_.parameters[layer.weight],
                                     parameter(layer.weight), parameter(layer.bias));
          else if constexpr (std::is_same_v<L, Linear>)
            return onednn::make_linear(engine_, operation, rows_, program_.parameters[layer.weight],
                                       parameter(layer.weight, in), parameter(*layer.bias));
          else if constexpr (std::is_same_v<L, MaxPool2d>)
            return onednn::make_pool(engine_, operation, rows_, layer);
          else
            throw WorkerError(kExitSoftware, "a lowered network has a layer that is no operation");
        },
        operation.op);
  }

  onednn::ParameterMemory parameter(std::size_t index) {
    const Parameter& p = program_.parameters[index];
    return parameter(p, memory::dims(p.shape.begin(), p.shape.end()));
  }
  // A linear layer after Flatten: its weight [out, in] is [out, channels, height, width] of the unflattened
  // input.
  onednn::ParameterMemory parameter(std::size_t index, const memory::desc& in) {
    const Parameter& p = program_.parameters[index];
    memory::dims dims = onednn::dimensions(in);
    dims[0] = p.shape[0];
    return parameter(p, dims);
  }
  onednn::ParameterMemory parameter(const Parameter& p, const memory::dims& dims) {
    const memory value(plain(dims), engine_, DNNL_MEMORY_NONE);
    weights_.emplace_back(value, p.offset);
    return {value, memory(plain(dims), engine_, gradient_.data() + p.offset)};
  }

  const Program program_;
  const LoweredProgram lowered_;
  const NodeClock clock_;
  const int rows_;
  const dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  // The parameters and their offsets in the caller's weights. All copies of a dnnl::memory share its address.
  std::vector<std::pair<memory, std::size_t>> weights_;
  Buffer gradient_;                         // flat
  Buffer input_, logits_, logit_gradient_;  // [rows][values]
  std::vector<std::unique_ptr<onednn::OnednnOp>> ops_;
  std::vector<onednn::PrimitiveCall> to_logits_;
  bool diverged_ = false;  // a parameter is NaN, which oneDNN's ReLU would turn into 0 and so hide
};

}  // namespace

std::unique_ptr<CpuGraph> make_onednn_graph(const Program& program, int capacity, NodeClock clock) {
  onednn::use_one_thread();  // before the first primitive is made
  try {
    return std::make_unique<OnednnGraph>(program, capacity, std::move(clock));
  } catch (const dnnl::error& error) {
    throw WorkerError(kExitSoftware, std::string("oneDNN cannot run this network: ") + error.what());
  }
}

}  // namespace dtrun::worker
