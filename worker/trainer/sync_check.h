// Checks that all replicas have the same parameters: broken memory or a broken processor of one rank would
// otherwise go unnoticed, since no rank ever sees another's parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/collective/process_group.h"
#include "worker/model/program.h"

namespace dtrun::worker {

// `hashes`: those of this rank's tensors, in the program's order. Called by all ranks. Throws WorkerError,
// kExitDataError, on every rank, naming the tensor and the ranks that differ from the majority, or from rank
// 0 if there is no majority.
void verify_sync(const Program& program, std::vector<std::uint64_t> hashes, std::int64_t step,
                 ProcessGroup& group);

// `fingerprint`: that of this rank's device. If ranks differ, their microbatches differ in the last bits, so
// the result is that of no single kind of device: throws WorkerError, kExitConfig, on every rank, or warns on
// rank 0 if the devices `may_differ`. Called by all ranks.
void compare_devices(const std::string& fingerprint, bool may_differ, ProcessGroup& group);

}  // namespace dtrun::worker
