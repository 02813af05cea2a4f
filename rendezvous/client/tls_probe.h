// Why two processes do not come together although the network lets them: gRPC says the same of a wrong key, a
// missing one and a dead host.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "proto/core/status.h"
#include "rendezvous/client/endpoint.h"
#include "rendezvous/identity/job_key.h"

namespace dtrun::rendezvous {

// Looks at the certificate that host:port shows, and at nothing else of it. A failure has EX_NOPERM: a
// coordinator is there that has another key than `key`, or one where there is none here, or none where there
// is one here; both keys' fingerprints are named. Success means only that there is no reason to say so.
Status compare_keys(const std::string& host, int port, const std::optional<JobKey>& key,
                    std::chrono::milliseconds timeout, const Interrupt& interrupt);

}  // namespace dtrun::rendezvous
