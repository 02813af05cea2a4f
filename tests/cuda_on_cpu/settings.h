// How the stand-in orders what CUDA leaves open. A correct program computes the same bits under all of it, so
// a test runs each case under several, and end-to-end runs choose by environment.
#pragma once

#include <chrono>
#include <cstdint>

namespace cuda_on_cpu {

enum class Order { kForward, kReverse, kRandom };

// When an operation of a stream runs. As late as possible: an operation runs once a caller synchronises with
// it, and only if that wait needs it; so a missing event wait gives wrong numbers every time instead of once
// a month. At random: in any order that events allow, some of it while more is enqueued.
enum class Policy { kAsLateAsPossible, kRandom };

struct Settings {
  Order threads = Order::kForward;  // within a block
  Order blocks = Order::kForward;   // within a grid
  Policy streams = Policy::kAsLateAsPossible;
  std::uint64_t seed = 1;
  // So many of the last terms of each matmul's sums are left out, as a release of cuBLASLt did.
  unsigned lost_terms = 0;
  // The architecture that kernels say they were compiled for, 90 being that of compute capability 9.0.
  int compiled_for = 90;
  // The first algorithm that cuBLASLt's heuristics propose leaves out the last 8 terms of sums with more of
  // them; or its state says that it is not supported.
  bool faulty_first = false, unsupported_first = false;
  // All of matmuls with this epilogue, as cublasLtEpilogue_t has it, leave out the last 8 terms.
  std::uint32_t faulty_epilogue = 0;
  // Whether cuBLASLt's heuristics know an algorithm for matmuls with an epilogue.
  bool epilogues = true;
  // Whether cuBLASLt's heuristics know an algorithm for matmuls of bf16 that are misaligned() or may lie off
  // 16 bytes. The real ones do, and it is a slow one.
  bool misaligned_products = true;
  // When a group of NCCL is launched at the latest: one that nobody has looked for.
  std::chrono::milliseconds launch_latest{20};
};

// Those of the environment: everything in a random order if DTRUN_TEST_GPU_ORDER is random:SEED.
Settings settings_of_environment();

// For all that follows. To be changed only while all that was enqueued is done.
inline Settings settings = settings_of_environment();

}  // namespace cuda_on_cpu
