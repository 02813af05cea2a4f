// The ways in which attention in bf16 can be computed, and what each costs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/bench/jobs.h"
#include "tests/bench/trial_gpu.h"

namespace dtrun::worker::cuda {

struct AttentionWay {
  using Step = std::function<void(cudaStream_t on, const AttentionMemory<__nv_bfloat16>& memory, void* work)>;

  std::string name;
  std::string why_not = {};   // "" or why it is not there
  std::size_t workspace = 0;  // bytes
  Step forward = {}, backward = {};
};

// Deterministic and not. attention_by_cudnn.cc has them; where the build lacks cuDNN's header,
// attention_without_cudnn.cc has none.
std::vector<AttentionWay> cudnn_ways(const AttentionShape& shape);

struct MeasuredAttention {
  AttentionShape shape;
  std::string name, why_not = {};
  std::size_t workspace = 0;
  double forward = 0, backward = 0;              // microseconds
  double forward_flops = 0, backward_flops = 0;  // for causal attention: half of all scores
  std::string fault = {};     // "" or that it fails, or gives other results than the own kernels
  int others = 0, times = 0;  // repetitions with other bits, of how many
};
struct AttentionResults {
  std::vector<MeasuredAttention> ways;  // the own kernels first
  // Of the GPU, by a copy of the largest shape's input: read and written.
  double copied_bytes_per_second = 0;
};

// Measures every attention shape of the jobs; jobs in fp32 have none. `others`: the ways beside the own
// kernels. Throws WorkerError.
AttentionResults measure_attention(
    TrialGpu& gpu, const std::vector<Job>& jobs, int times,
    const std::function<std::vector<AttentionWay>(const AttentionShape& shape)>& others = cudnn_ways);

}  // namespace dtrun::worker::cuda
