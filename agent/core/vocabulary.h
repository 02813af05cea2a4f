// The words that the agent's decisions share with the coordinator.
#pragma once

#include "rendezvous/core/messages.h"

namespace dtrun::agent {

using rendezvous::Activity;
using rendezvous::Assignment;
using rendezvous::GpuUse;
using rendezvous::Hang;
using rendezvous::JobEnd;
using rendezvous::LocationGroup;
using rendezvous::RankRange;
using rendezvous::Verdict;
using rendezvous::WorkerOutcome;
using rendezvous::WorkerReport;
using rendezvous::WorkerUsage;

}  // namespace dtrun::agent
