// The ways in which a layer's weight gradients can be computed: one after the other, cut into parts of k,
// with the gradient of the bias in a kernel of its own, and beside the gradients of its inputs.
#pragma once

#include <string>
#include <vector>

#include "tests/bench/jobs.h"
#include "tests/bench/trial_gpu.h"

namespace dtrun::worker::cuda {

// The algorithms for the weight gradients; other matmuls use the normal ones.
enum class WeightAlgorithms {
  kInUse,    // the table's, or the library's first choice
  kUnsplit,  // the fastest of those proposed that do not cut k
  kSplit,    // the fastest of those that do
  kApart,    // in use for the matmul alone; the bias' gradient is summed by a kernel behind it
};
inline constexpr const char* kWeightAlgorithmsNames[] = {"in use", "split 1", "split", "apart"};

struct MeasuredWeights {
  WeightAlgorithms algorithms;
  // Beside the matmuls of input gradients: 0 is one after the other, on their stream. -1: without the
  // weight gradients. -2: without the input gradients, one after the other.
  int side_streams;
  double microseconds;
};

struct WeightResults {
  std::vector<std::string> matmuls;  // the weight gradients: name_of() them
  std::vector<MeasuredWeights> ways;
  std::vector<std::string> splits;  // of each matmul, the algorithms of kSplit: "4"; "-" where there is none
};

// Measures up to four matmuls, of the first layers that backward reaches after the classifier. Throws
// WorkerError.
WeightResults measure_weights(TrialGpu& gpu, const Job& job);

}  // namespace dtrun::worker::cuda
