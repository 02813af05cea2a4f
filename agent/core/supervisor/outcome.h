// What a worker's end means: whose fault it was, and whether it would come again. Pure functions of that end
// and of what this agent did to the worker.
#pragma once

#include "agent/core/supervisor/state.h"

namespace dtrun::agent {

// The end was no cause: the agent stopped the worker, or a peer's end took it along.
bool is_collateral(const WorkerOutcome& outcome, const State& state);

// The same worker may end in another way the next time. REQUIRES: its program was executed
bool is_retryable(const WorkerOutcome& outcome, const Settings& settings);

// It ended because it was told to, or by itself with 0. REQUIRES: complete() made the outcome
bool ended_well(const WorkerOutcome& outcome, const Settings& settings);

// A signal told the job to end, and so did the worker before it was killed for it.
bool ended_as_told(const WorkerOutcome& outcome, const State& state);

// The outcome as other nodes and people get it: with rank, group rank, host, collateral and retryable.
// `never_ran`: the program could not be executed. REQUIRES: outcome.local_rank
WorkerOutcome complete(WorkerOutcome outcome, const State& state, bool never_ran);

}  // namespace dtrun::agent
