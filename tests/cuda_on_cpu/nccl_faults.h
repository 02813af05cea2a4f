// Faults of NCCL that a test plans, as faults.h does for CUDA.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace cuda_on_cpu {

// KIND:RANK[@GROUP][:ERROR], separated by commas; "" is none. RANK is that in its communicator, GROUP counts
// the communicator's groups from 1 on (the first if it is left out). Anything else ends the process.
//   init-fails     the init ends with the error, and the others' never does
//   init-stuck     the init never ends, and the others' does
//   group-stuck    the group is not launched: the state stays in progress
//   silent         its operation moves nothing and never ends
//   async-error    the same, and ncclCommGetAsyncError returns the error
//   dies           SIGKILL to its own process when half of its first message is sent
//   breaks-device  the operation ends with the CUDA error, which sticks
//   abort-hangs    ncclCommAbort never returns
// DTRUN_TEST_NCCL_FAULT is this, planned from the beginning. If DTRUN_TEST_NCCL_FAULT_ONCE names a file, each
// fault is had by the process alone that can create it (the second fault: FILE.1).
void plan_nccl_faults(const std::string& text);

// The error of the fault of this kind that the caller is to have now.
std::optional<int> nccl_fault(const std::string& kind, int rank, std::uint64_t group = 1);

}  // namespace cuda_on_cpu
