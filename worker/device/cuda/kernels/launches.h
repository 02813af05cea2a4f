// Whether kernels are launched while the one in front of them in their stream still runs
// (wait_for_previous() in gpu.h). All GPUs of a process are alike.
#pragma once

namespace dtrun::worker::cuda {

// From compute capability 9.0 on, unless DTRUN_CUDA_PROGRAMMATIC is 0 or launch_one_by_one() was called.
bool programmatic_launches();
// From now on they are not. Any thread.
void launch_one_by_one();

}  // namespace dtrun::worker::cuda
