// The forward pass of a frozen model (worker/model/program.h, Teacher) beside a lane's: its logits for the
// same microbatch, in the lane's elements and on its stream.
#pragma once

#include <filesystem>
#include <utility>
#include <variant>

#include "worker/device/cuda/kernels/cross_entropy.h"
#include "worker/device/cuda/lane/checked_schedule.h"
#include "worker/device/cuda/lane/launcher.h"

namespace dtrun::worker::cuda {

template <typename T>
class TeacherForward {
 public:
  // For a lane of so many samples, whose microbatch lies `there` and its values, as T, at `samples`. `plans`:
  // as in make_cuda_lane(). Blocks.
  TeacherForward(const Teacher& teacher, int capacity, int gpu, CudaArithmetic& arithmetic,
                 CudaStream& stream, const std::filesystem::path& plans,
                 const MicrobatchUpload::OnDevice& there, const void* samples)
      : program_(in_elements(teacher.program)),
        launcher_(arithmetic, static_cast<std::size_t>(capacity) * program_.sample.targets, 0, use_),
        schedule_(make_checked_schedule(program_, capacity, forward_only(program_.bf16), 0,
                                        launcher_.matmuls(), arithmetic, stream, use_)),
        arena_(make_arena(program_, capacity, schedule_.arena, arithmetic)),
        parameters_(arithmetic.allocate(Where::kDevice, program_.size)) {
    Trial trial(arithmetic, stream, arena_.data(), schedule_.arena);
    launcher_.choose_cudnn(schedule_, gpu, plans, trial);
    launcher_.make_workspaces(schedule_, 1);
    arithmetic.copy(stream, parameters_.data(), teacher.parameters.data(), program_.size);
    LaneMemory<T>& memory = launcher_.memory();
    memory.arena = arena_.data(), memory.microbatch = there, memory.samples = samples;
    memory.parameters = parameters_.data(), memory.matrices = parameters_.data();
    if constexpr (sizeof(T) == 2) {
      rounded_ = arithmetic.allocate_bytes(program_.size * sizeof(T), "the teacher's parameters");
      to_bf16(stream.handle(), program_.size, parameters_.data(), reinterpret_cast<T*>(rounded_.data()));
      check_launch("to_bf16");
      memory.matrices = rounded_.data();
    }
    stream.wait();
    for (const Step& step : schedule_.evaluate)
      if (const auto* const loss = std::get_if<CrossEntropy>(&step.work))
        logits_ = {.logits = memory.values(loss->logits),
                   .padded = loss->stride,
                   .temperature = teacher.temperature,
                   .alpha = teacher.alpha};
  }

  // Overwritten by each enqueue().
  const TeacherLogits<T>& logits() const { return logits_; }

  void enqueue(CudaStream& on) {
    for (const auto* const steps : {&schedule_.forward, &schedule_.evaluate})
      for (const Step& step : *steps)
        if (!std::holds_alternative<CrossEntropy>(step.work)) launcher_.launch(step, on.handle());
  }

 private:
  static Program in_elements(Program program) {
    program.bf16 = sizeof(T) == 2;
    return program;
  }
  static PlanFor forward_only(bool bf16) {
    PlanFor plan = plan_for_gpu(bf16);
    plan.forward_only = true;
    return plan;
  }

  UseRecord use_{false};
  const Program program_;
  StepLauncher<T> launcher_;
  const Schedule schedule_;
  const Buffer arena_, parameters_;
  Buffer rounded_;  // as T
  TeacherLogits<T> logits_;
};

}  // namespace dtrun::worker::cuda
