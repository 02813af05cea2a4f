// Whether all replicas have the same parameters, as they must: a broken memory or processor on one of them
// would otherwise go unnoticed, since no rank ever sees another's parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/collective/process_group.h"
#include "worker/model/program.h"

namespace dtrun::worker {

// `hashes`: of this rank's tensors, in the program's order. Called by all ranks alike. Throws WorkerError,
// kExitDataError on every rank alike, naming the tensor and the ranks that differ from most, or from rank 0
// where none are the most.
void verify_sync(const Program& program, std::vector<std::uint64_t> hashes, std::int64_t step,
                 ProcessGroup& group);

// `fingerprint`: of this rank's device. Where other ranks' are others, their microbatches have other last
// bits, so the result is that of no one kind of device: throws WorkerError, kExitConfig, on every rank alike,
// or warns on rank 0 if these `may_differ`. Called by all ranks alike.
void compare_devices(const std::string& fingerprint, bool may_differ, ProcessGroup& group);

}  // namespace dtrun::worker
