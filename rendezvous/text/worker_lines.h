// The kernel's account of the workers for people. Pure but for the messages' types.
#pragma once

#include <string>

#include "proto/rendezvous.pb.h"

namespace dtrun::rendezvous {

// A line for each node whose agent has looked at its workers, with the least and the most of them.
std::string worker_lines(const v1::RunStatus& run);

}  // namespace dtrun::rendezvous
