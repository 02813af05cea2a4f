// Whether kernels are launched while the one in front of them in their stream still runs
// (wait_for_previous() in gpu.h). All GPUs of a process are alike.
#pragma once

#include <string>

namespace dtrun::worker::cuda {

// Whether the kernels that this GPU runs were compiled for compute capability 9.0 or later, whose code waits,
// and DTRUN_CUDA_PROGRAMMATIC is not 0. A later GPU may run code for an earlier one.
bool may_launch_programmatically();
// "switched off by DTRUN_CUDA_PROGRAMMATIC", or what the kernels were compiled for.
std::string why_not_programmatic();
// As that was when it was asked first, unless launch_one_by_one() was called.
bool programmatic_launches();
// From now on they are not. Any thread.
void launch_one_by_one();

}  // namespace dtrun::worker::cuda
