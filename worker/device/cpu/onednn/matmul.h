// Matmuls of bf16 by oneDNN on AMX, on the calling thread, and the facts about oneDNN that results depend on.
#pragma once

#include <memory>
#include <string>

#include "worker/device/cpu/matmul/matmul.h"

namespace dtrun::worker::onednn {

// Makes oneDNN use the calling thread alone, for work from this thread. By default it divides its work among
// OpenMP's threads, in a way that depends on their number.
void use_one_thread();

using matmul::Bf16, matmul::Matmul;

// "oneDNN 2.6.3"
std::string version();

// The largest instruction set that oneDNN's kernels use here. "AVX512_CORE_AMX".
std::string instruction_set();

// Whether oneDNN multiplies bf16 by AMX here: the processor has it, and neither DTRUN_CPU nor
// ONEDNN_MAX_CPU_ISA leaves it out.
bool has_amx();

// Matmuls of bf16 that are summed in fp32. Keeps the primitive that oneDNN compiled for each shape, so that
// only the first matmul of a shape takes milliseconds. Used by one thread, which has called
// use_one_thread().
class Bf16Multiplier {
 public:
  Bf16Multiplier();
  ~Bf16Multiplier();

  // Throws WorkerError (EX_SOFTWARE).
  void multiply(const Matmul<Bf16>& matmul);

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace dtrun::worker::onednn
