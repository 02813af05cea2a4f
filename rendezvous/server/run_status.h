// The status of a run for `dtrun status`: a picture of the coordinator's state for people and scripts.
#pragma once

#include "proto/rendezvous.pb.h"
#include "rendezvous/core/run/state.h"

namespace dtrun::rendezvous {

v1::RunStatus status_of(const State& state, Millis now);

}  // namespace dtrun::rendezvous
