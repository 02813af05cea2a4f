#include "tests/cuda_on_cpu/errors.h"

#include <atomic>

namespace cuda_on_cpu {
namespace {

thread_local cudaError_t last = cudaSuccess;
std::atomic<cudaError_t> sticky = cudaSuccess;

}  // namespace

cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess) last = error;
  return error;
}

cudaError_t last_error() { return broken() != cudaSuccess ? broken() : last; }

void forget_last_error() { last = cudaSuccess; }

cudaError_t broken() { return sticky; }

void break_device(cudaError_t error) { sticky = error; }

void mend_device() { sticky = cudaSuccess; }

}  // namespace cuda_on_cpu
