// Why two processes do not come together although the network lets them: gRPC says the same of a wrong key, a
// missing one and a dead host.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "proto/core/status.h"
#include "rendezvous/client/endpoint.h"
#include "rendezvous/identity/credential.h"

namespace dtrun::rendezvous {

// Looks at the certificate that host:port shows, and at how it takes this process' own. A failure has
// EX_NOPERM: a coordinator is there that has another key than `key`, or one where there is none here, or none
// where there is one here, and both keys' fingerprints are named; or `key` is a ticket that has ended by the
// clock there. Success means only that there is no reason to say so.
Status compare_keys(const std::string& host, int port, const std::optional<Credential>& key,
                    std::chrono::milliseconds timeout, const Interrupt& interrupt);

}  // namespace dtrun::rendezvous
