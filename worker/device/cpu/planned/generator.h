// Runs a program of tokens one token at a time, keeping keys and values of earlier tokens, to generate text.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/base/buffer.h"
#include "worker/base/error.h"
#include "worker/device/cpu/matmul/multiplier.h"
#include "worker/device/cpu/planned/kernels.h"
#include "worker/model/program.h"

namespace dtrun::worker {

class Generator {
 public:
  // Used by the thread that makes it. parameters: flat. Throws WorkerError (EX_SOFTWARE) for a program that
  // does not read tokens.
  Generator(const Program& program, std::vector<float> parameters);

  // The number of tokens of a sample.
  int longest() const { return program_.values[0].rows; }
  int size() const { return size_; }  // tokens so far

  // Takes in the next token; returns the logits of the token behind it, [classes], valid until the next call.
  // REQUIRES: size() < longest(), and the token is one of the model's.
  std::span<const float> next(std::int32_t token);
  // Forgets all tokens.
  void clear() { size_ = 0; }

 private:
  float* value(Value v) { return values_[v].data(); }
  const float* parameter(std::size_t index) const {
    return parameters_.data() + program_.parameters[index].offset;
  }
  void run(const Linear& linear, const Node& node);
  void run(const Embedding& embedding, const Node& node);
  void run(const AddPositions& positions, const Node& node);
  void run(const LayerNorm& norm, const Node& node);
  void run(const Attention& attention, const Node& node);
  void run(const Relu&, const Node& node);
  void run(const Gelu&, const Node& node);
  void run(const Dropout&, const Node& node);
  void run(const Add&, const Node& node);
  void run(const LogSoftmaxNll&, const Node&) {}
  void run(const Flatten&, const Node& node);
  [[noreturn]] void run(const auto&, const Node&) {
    throw WorkerError(kExitSoftware, "a generator has no operations on images");
  }

  const Program program_;
  const std::vector<float> parameters_;
  const planned::Kernels& k_ = planned::kernels();
  matmul::Multiplier multiplier_;
  std::vector<Buffer> values_;  // of each value: one row
  std::vector<Buffer> past_;    // of each node: attention's rows of [query | key | value] so far
  Buffer scores_;               // [longest]
  std::int32_t token_ = 0;      // the current one
  int size_ = 0;
};

}  // namespace dtrun::worker
