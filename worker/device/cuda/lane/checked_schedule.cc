#include "worker/device/cuda/lane/checked_schedule.h"

#include <bit>

#include "worker/device/cuda/failure.h"
#include "worker/device/cuda/matmul/matmul_check.h"

namespace dtrun::worker::cuda {
namespace {

// The largest number of samples below `capacity` whose activations take at most `bytes`.
int samples_that_fit(const Program& program, int capacity, std::size_t bytes) {
  int fits = 0;
  for (unsigned step = std::bit_floor(static_cast<unsigned>(capacity)); step > 0; step /= 2) {
    const int tried = fits + static_cast<int>(step);
    if (tried < capacity &&
        make_plan(program, tried, plan_for_gpu(program.bf16)).arena * (program.bf16 ? 2 : sizeof(float)) <=
            bytes)
      fits = tried;
  }
  return fits;
}

}  // namespace

Schedule make_checked_schedule(const Program& program, int capacity, const PlanFor& plan, int side_streams,
                               Matmuls& matmuls, CudaArithmetic& arithmetic, CudaStream& stream,
                               UseRecord& use) {
  const Buffer workspace = arithmetic.try_allocate_bytes(Matmuls::kLargestWorkspace);
  Trial trial(arithmetic, stream, nullptr, 0);
  MatmulCheck check(matmuls, trial, workspace ? workspace.data() : nullptr);
  int asked = 0, fused = 0;
  const auto multiplies = [&](const MatmulShape& shape) {
    const bool passes = check.passes(shape);
    asked += shape.epilogue != Epilogue::kNone;
    fused += shape.epilogue != Epilogue::kNone && passes;
    return passes;
  };
  Schedule schedule =
      make_schedule(program, make_plan(program, capacity, plan), capacity,
                    {.bf16 = program.bf16, .multiplies = multiplies, .side_streams = side_streams});
  check.require(products_of(schedule));
  const std::string of_all = std::to_string(fused) + " of " + std::to_string(asked) + " matmuls";
  use.set("cublaslt", cublas_lt().version + " (" + cublas_lt().file + ")");
  use.set("fused_epilogues", of_all);
  // For fp32 the library has only some epilogues, which is no fallback.
  if (program.bf16 && fused < asked)
    use.fall_back("cuBLASLt adds biases, or what else follows a matmul, to " + of_all +
                  " only: kernels of our own do the rest");
  return schedule;
}

Buffer make_arena(const Program& program, int capacity, std::size_t bytes, CudaArithmetic& arithmetic) {
  Buffer arena = arithmetic.try_allocate_bytes(bytes);
  if (!arena) {
    const int fits = samples_that_fit(program, capacity, free_memory());
    out_of_memory("the activations of " + std::to_string(capacity) + " samples (train.micro_batch_size)",
                  bytes,
                  fits == 0 ? ""
                            : "a train.micro_batch_size of " + std::to_string(fits) +
                                  " may fit, and more with model.gradient_checkpointing (gpt2)");
  }
  return arena;
}

}  // namespace dtrun::worker::cuda
