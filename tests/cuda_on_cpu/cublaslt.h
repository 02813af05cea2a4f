// A stand-in for cuBLASLt behind its own functions (cublasLt.h): matmuls are computed in stream order, and
// what the real library would refuse, or its manual forbids, is refused.
#pragma once

#include <string>

namespace cuda_on_cpu {

// Why this thread's last call of cuBLASLt did not return CUBLAS_STATUS_SUCCESS.
std::string matmul_refusal();

}  // namespace cuda_on_cpu
