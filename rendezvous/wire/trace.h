// Operations of a worker as numbers of a WorkerTrace. Each of a trace's thousands has kNumbersOfOperation:
// generation, step, kind, state, bucket, round, peer, lane, its begin in ns since that of the one before, and
// its length in ns; one that waits has the length -1.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "proto/core/operation.h"
#include "proto/rendezvous.pb.h"

namespace dtrun::rendezvous {

inline constexpr std::size_t kNumbersOfOperation = 10;

void to_wire(std::span<const Operation> operations, v1::WorkerTrace* wire);
// Total: numbers that are no whole operation are left out, and unknown kinds are messages.
std::vector<Operation> operations_of(const v1::WorkerTrace& wire);

}  // namespace dtrun::rendezvous
