// The memory behind a schedule's places, for one lane: the caller's parameters, samples and results, and the
// lane's own memory, which does not move.
#pragma once

#include <cstddef>

#include "worker/base/buffer.h"
#include "worker/device/cpu/planned/gathered_convolution.h"
#include "worker/device/device.h"
#include "worker/model/plan.h"
#include "worker/model/program.h"
#include "worker/schedule/schedule.h"

namespace dtrun::worker::planned {

using namespace schedule;

class LaneMemory {
 public:
  LaneMemory(const Program& program, Plan plan, int capacity)
      : program_(program),
        plan_(std::move(plan)),
        arena_(plan_.arena),
        columns_(lane_columns(program, plan_, capacity)) {}

  const Program& program() const { return program_; }
  const Plan& plan() const { return plan_; }

  // The samples and the other two stay until the next call. `gradient`: flat; not written in an evaluation.
  void begin(const Microbatch& microbatch, const float* weights, float* gradient) {
    microbatch_ = microbatch, weights_ = weights, gradient_ = gradient;
    const auto real = static_cast<std::size_t>(microbatch.samples), group = std::size_t(plan_.group);
    samples_ = (real + group - 1) / group * group;
  }
  const Microbatch& microbatch() const { return microbatch_; }

  bool grouped() const { return plan_.group > 1; }
  std::size_t samples() const { return samples_; }  // with the padding of the last group

  // Null for no place. The parameters are fp32 in either of their spaces.
  const float* in(const Place& place) const {
    const std::size_t at = place.offset / sizeof(float);
    switch (place.space) {
      case Space::kSamples:
        return microbatch_.values + at;
      case Space::kParameters:
      case Space::kMatrices:
        return weights_ + at;
      default:
        return out(place);
    }
  }
  // Of a place that steps write.
  float* out(const Place& place) const {
    const std::size_t at = place.offset / sizeof(float);
    if (place.space == Space::kArena) return arena_.data() + at;
    return place.space == Space::kGradient ? gradient_ + at : nullptr;
  }
  float* columns() const { return columns_.data(); }

 private:
  const Program program_;
  const Plan plan_;
  const Buffer arena_;
  const Buffer columns_;  // lane_columns()
  Microbatch microbatch_;
  const float* weights_ = nullptr;
  float* gradient_ = nullptr;
  std::size_t samples_ = 0;
};

}  // namespace dtrun::worker::planned
