#include "tests/worker/device/cuda/matmul/algorithms_on_cpu.h"

#include "worker/device/cuda/matmul/algorithms.h"

namespace dtrun::worker::cuda {

std::string_view committed_algorithms() { return table_on_cpu; }

}  // namespace dtrun::worker::cuda
