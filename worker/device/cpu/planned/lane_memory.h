// The memory of a planned lane: the places of values, gradients and parameters for the current microbatch.
#pragma once

#include <cstddef>
#include <vector>

#include "worker/base/buffer.h"
#include "worker/device/device.h"
#include "worker/model/plan.h"
#include "worker/model/program.h"

namespace dtrun::worker::planned {

class LaneMemory {
 public:
  LaneMemory(const Program& program, Plan plan)
      : program_(program), plan_(std::move(plan)), arena_(plan_.arena), columns_(plan_.columns) {}

  const Program& program() const { return program_; }
  const Plan& plan() const { return plan_; }

  // `gradient`: flat; null in an evaluation. Both stay until the next call.
  void begin_forward(const Microbatch& microbatch, const float* weights, float* gradient) {
    microbatch_ = &microbatch, weights_ = weights, gradient_ = gradient;
    const auto real = static_cast<std::size_t>(microbatch.samples), group = std::size_t(plan_.group);
    samples_ = (real + group - 1) / group * group;
    value_ = &plan_.value, aux_ = &plan_.aux;
  }
  void begin_backward() { value_ = &plan_.value_again, aux_ = &plan_.aux_again; }
  const Microbatch& microbatch() const { return *microbatch_; }

  bool grouped() const { return plan_.group > 1; }
  std::size_t samples() const { return samples_; }  // with the padding of the last group
  std::size_t rows(Value value) const { return samples_ * program_.values[value].rows; }
  std::size_t width(Value value) const { return program_.values[value].row.size(); }
  std::size_t count(Value value) const { return rows(value) * width(value); }

  const float* in(Value value) const {
    const std::size_t offset = (*value_)[value];
    return offset == kInput ? microbatch_->values : arena_.data() + offset;
  }
  float* out(Value value) const { return arena_.data() + (*value_)[value]; }
  float* gradient(Value value) const { return arena_.data() + plan_.gradient[value]; }
  float* logits() const { return arena_.data() + plan_.logits; }
  float* aux(int node) const { return arena_.data() + (*aux_)[node]; }
  float* columns() const { return columns_.data(); }
  const float* weight(std::size_t parameter) const {
    return weights_ + program_.parameters[parameter].offset;
  }
  float* weight_gradient(std::size_t parameter) const {
    return gradient_ + program_.parameters[parameter].offset;
  }
  bool wants_gradient() const { return gradient_ != nullptr; }

 private:
  const Program program_;
  const Plan plan_;
  const Buffer arena_;
  const Buffer columns_;  // Plan::columns
  const Microbatch* microbatch_ = nullptr;
  const float* weights_ = nullptr;
  float* gradient_ = nullptr;
  std::size_t samples_ = 0;
  const std::vector<std::size_t>* value_ = nullptr;
  const std::vector<std::size_t>* aux_ = nullptr;
};

}  // namespace dtrun::worker::planned
