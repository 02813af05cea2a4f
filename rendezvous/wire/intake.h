// What is done with a message from the network before anybody looks at it.
#pragma once

#include <google/protobuf/message.h>

#include <cstddef>
#include <optional>
#include <string>

#include "proto/rendezvous.pb.h"

namespace dtrun::rendezvous {

// Every text in it becomes one that a terminal shows as it is (proto/core/utf8.h), in one line but for what
// has lines by its nature: a config, and what a worker said at its end.
void make_printable(google::protobuf::Message* message);

// In bytes; an agent says much less, and what is told is kept.
inline constexpr std::size_t kMostOfText = 1024;  // of a Join, but for its job
inline constexpr std::size_t kMostOfMessage = 128
                                              << 10;  // but for a node's outcomes, which gRPC's limit bounds

// Why it is longer; nothing if it is not.
std::optional<std::string> too_long(const v1::FromAgent& message);

}  // namespace dtrun::rendezvous
