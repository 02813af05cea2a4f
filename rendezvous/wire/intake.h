// Makes a message from the network harmless before any other code reads it.
#pragma once

#include <google/protobuf/message.h>

#include <cstddef>
#include <optional>
#include <string>

#include "proto/rendezvous.pb.h"

namespace dtrun::rendezvous {

// Makes every text in it safe to show on a terminal (proto/core/utf8.h), in one line except for texts that
// have lines by their nature: a config, and a worker's last output.
void make_printable(google::protobuf::Message* message);

// In bytes; an agent sends much less, and news of it are kept.
inline constexpr std::size_t kMostOfText = 1024;  // of a Join, but for its job
inline constexpr std::size_t kMostOfMessage = 128
                                              << 10;  // but for a node's outcomes, which gRPC's limit bounds

// The reason why the message is too long; nothing if it is not.
std::optional<std::string> too_long(const v1::FromAgent& message);

}  // namespace dtrun::rendezvous
