// The agent that is started to come back to a detached job: sends what the job writes to the launcher, and
// passes signals on to the agent that writes it.
#pragma once

#include "proto/core/status.h"
#include "proto/core/times.h"
#include "proto/launch.pb.h"

namespace dtrun::cmd {

// Ends after Ended is sent, or when the launcher is gone, or silent for Times::launcher_silence; the job
// does not notice. Fails if there is no such run on this host, and has sent nothing then.
Status relay_detached(const launch::Attach& attach, int in, int out, const Times& times);

}  // namespace dtrun::cmd
