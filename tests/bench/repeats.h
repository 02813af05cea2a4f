// Whether a GPU gives the same bits each time: each kind of work that a job has, repeated by itself, and
// whole microbatches while something else keeps the GPU busy.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tests/bench/jobs.h"
#include "tests/bench/trial_gpu.h"

namespace dtrun::worker::cuda {

struct Repeated {
  std::string kind;  // "matmul", "addition", "attention", "convolution" or "microbatch"
  std::string what;
  std::string by = {};  // "cuDNN" or "own kernels", where there is a choice
  int times = 0;
  std::uint64_t hash = 0;    // of the first repeat
  int others = 0;            // times with another hash
  std::string skipped = {};  // "" or why it was not tried
};

struct RepeatOptions {
  int times = 50;
  std::size_t busy_bytes = std::size_t{64} << 20;  // copied beside a microbatch; 0: nothing runs beside it
  // Whether to go on to the next.
  std::function<bool()> goes_on = [] { return true; };
};

// Tells `found` of each. A shape that several steps have is tried once. kind "addition": whether a matmul
// that is added to c has the bits of the matmul, added by the kernel that adds vectors; `others` counts
// that. Throws WorkerError if the GPU fails.
void repeat_parts(TrialGpu& gpu, const Job& job, const RepeatOptions& options,
                  const std::function<void(const Repeated&)>& found);
// A lane's microbatches: the first kernel by kernel, others as a graph.
Repeated repeat_microbatch(const Job& job, const RepeatOptions& options);

}  // namespace dtrun::worker::cuda
