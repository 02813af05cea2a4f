// Finds out why two processes do not come together although the network lets them: gRPC reports the same for
// a wrong key, a missing one and a dead host.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "proto/core/status.h"
#include "rendezvous/client/endpoint.h"
#include "rendezvous/identity/job_key.h"

namespace dtrun::rendezvous {

// Looks at the certificate that host:port shows. A failure has EX_NOPERM: the coordinator there has another
// key than `key`, or only one of the two has a key, and the fingerprints are named. Success means only that
// no such difference was found.
Status compare_keys(const std::string& host, int port, const std::optional<JobKey>& key,
                    std::chrono::milliseconds timeout, const Interrupt& interrupt);

}  // namespace dtrun::rendezvous
