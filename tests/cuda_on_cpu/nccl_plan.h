// A test's plan for the stand-in of NCCL: faults, the ranks that notice a death, and orders. As settings.h
// and faults.h do for CUDA.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <string>
#include <vector>

namespace cuda_on_cpu {

enum class NcclFaultKind {
  kInitAbsent,      // never turns up: nobody's init ends
  kInitStuck,       // turns up, and its own init never ends: the others' does
  kInitFails,       // ends with the error, and the others' never does
  kGroupStuck,      // the group is not launched: ncclGroupEnd, or the state, stays in progress
  kSilent,          // its operation moves nothing and never ends
  kAsyncError,      // the same, and ncclCommGetAsyncError returns the error
  kDies,            // SIGKILL to its own process when half of its first message is sent
  kBreaksDevice,    // the operation ends with the CUDA error, which sticks
  kAbortHangs,      // ncclCommAbort never returns
  kAbortBusyHangs,  // the same, if an init or a group's launch goes on in another thread
};

struct NcclFault {
  NcclFaultKind kind;
  int rank = 0;             // in its communicator
  std::uint64_t group = 1;  // counts the communicator's groups; for kinds that concern one group
  int error = 0;            // ncclResult_t, or cudaError_t for kBreaksDevice
};

// NCCL learns of a peer's death where it has a socket to it, not where it writes into its memory. The
// survivors of a communicator that notice a death: those with odd ranks (kSome), all or none. With none there
// is only silence.
enum class Deaths { kSome, kAll, kNone };

struct NcclPlan {
  std::vector<NcclFault> faults;
  std::string once;  // a file: each fault is had by the process alone that can create it (the second: FILE.1)
  Deaths noticed = Deaths::kSome;
  // 0: in a fixed order and by as much as possible, launches as late as possible. Else at random.
  std::uint64_t seed = 0;
};

// The plan that the environment describes. A value that is none of these ends the process.
//   DTRUN_TEST_NCCL_FAULT       KIND:RANK[@GROUP][:ERROR], separated by commas; errors by their numbers.
//   Kinds
//     are init-absent, init-stuck, init-fails, group-stuck, silent, async-error, dies, breaks-device,
//     abort-hangs, abort-busy-hangs
//   DTRUN_TEST_NCCL_FAULT_ONCE  the file
//   DTRUN_TEST_NCCL_DEATHS      some (if unset), all or none
//   DTRUN_TEST_NCCL_ORDER       the seed
NcclPlan nccl_plan_of_environment();
std::vector<NcclFault> nccl_faults_of(const std::string& text);

// To be changed only while there is no communicator.
inline NcclPlan nccl_plan = nccl_plan_of_environment();

// The fault of this kind that the caller is to have now; null if none.
const NcclFault* nccl_fault(NcclFaultKind kind, int rank, std::uint64_t group = 1);

}  // namespace cuda_on_cpu
