// CUDA without a GPU, for tests: included by kernels' files and their callers instead of nvcc's headers.
// Types (dim3, float4, __nv_bfloat16, cudaStream_t) are CUDA's own. Kernels run on the CPU (block.h) in lazy
// streams (streams.h); streams.h, memory.h and faults.h have what only tests ask for. For correctness, bounds
// and races, never for speed.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include "tests/cuda_on_cpu/device_functions.h"
#include "tests/cuda_on_cpu/launch.h"
#include "tests/cuda_on_cpu/settings.h"
#include "tests/cuda_on_cpu/streams.h"
