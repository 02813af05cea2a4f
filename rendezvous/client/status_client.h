// Asks a coordinator who is where, doing what: one call on a connection of its own.
#pragma once

#include <chrono>
#include <string>

#include "proto/core/status.h"
#include "proto/rendezvous.pb.h"

namespace dtrun::rendezvous {

// Of one run, or of all if `run_id` is empty. A failure has EX_UNAVAILABLE and names the endpoint.
Result<v1::StatusReply> fetch_status(const std::string& host, int port, const std::string& run_id,
                                     std::chrono::milliseconds timeout);

}  // namespace dtrun::rendezvous
