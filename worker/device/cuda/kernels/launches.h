// Whether a kernel is launched while the previous one of its stream still runs (wait_for_previous() in
// gpu.h). Assumes that all GPUs of a process are of one kind.
#pragma once

#include <string>

namespace dtrun::worker::cuda {

// Whether the kernels that this GPU runs were compiled for compute capability 9.0 or later, whose code waits.
// A later GPU may run kernels compiled for an earlier one.
bool may_launch_programmatically();
// That launch_one_by_one() was called, or the compute capability that the kernels were compiled for.
std::string why_not_programmatic();
// The value of may_launch_programmatically() at the first call, unless launch_one_by_one() was called.
bool programmatic_launches();
// Makes programmatic_launches() false from now on, since no graph can be recorded with them. Any thread.
void launch_one_by_one();

}  // namespace dtrun::worker::cuda
