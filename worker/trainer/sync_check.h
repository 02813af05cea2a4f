// Checks that all replicas have the same data, devices and parameters: other files on a node, broken memory
// or a broken processor of one rank would otherwise go unnoticed, since no rank ever sees another's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/collective/process_group.h"
#include "worker/model/program.h"
#include "worker/trainer/recovery/replica.h"
#include "worker/trainer/recovery/resume.h"

namespace dtrun::worker {

// `hashes`: those of this rank's tensors, in the program's order. Called by all ranks. Throws WorkerError,
// kExitDataError, on every rank, naming the tensor and the ranks that differ from the majority, or from rank
// 0 if there is no majority.
void verify_sync(const Program& program, std::vector<std::uint64_t> hashes, std::int64_t step,
                 ProcessGroup& group);

// Throws WorkerError, EX_NOINPUT, on every rank if they have not all loaded the same data; the message names
// nodes and what differs. Called by all ranks, before anything is exchanged or mapped whose size depends on
// the data. A state that ranks hold is saved first: a node that joins with other data ends the job.
void compare_data(const Replica& replica, const RankInGeneration& place, ProcessGroup& group);

// `fingerprint`: that of this rank's device. If ranks differ, their microbatches differ in the last bits, so
// the result is that of no single kind of device: throws WorkerError, kExitConfig, on every rank, or warns on
// rank 0 if the devices `may_differ`. Called by all ranks.
void compare_devices(const std::string& fingerprint, bool may_differ, ProcessGroup& group);

}  // namespace dtrun::worker
