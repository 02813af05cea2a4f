// The tags of all messages between ranks: two messages that may be under way between the same ranks at the
// same time, and are not of one sequence, have different ones. The first hex digit tells the message's
// purpose.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/base/operation_log.h"

namespace dtrun::worker {

inline constexpr std::uint32_t kTagAllGather = 0x10000000;
inline constexpr std::uint32_t kTagBroadcast = 0x20000000;
inline constexpr std::uint32_t kTagStopVote = 0x30000000;
inline constexpr std::uint32_t kTagEvaluation = 0x40000000;
inline constexpr std::uint32_t kTagRound = 0x50000000;
inline constexpr std::uint32_t kTagNeighbour = 0x70000000;

// The moves from one rank to another in this round of a bucket, in the plan's order. REQUIRES: bucket < 2^20,
// round < 2^8.
constexpr std::uint32_t tag_of_round(int bucket, std::size_t round) {
  return kTagRound | static_cast<std::uint32_t>(bucket) << 8 | static_cast<std::uint32_t>(round);
}

// A message with `tag` to or from `peer`, as it is written down.
constexpr Operation operation_of(std::uint32_t tag, int peer, bool is_send) {
  using Kind = Operation::Kind;
  Operation operation{.kind = Kind::kMessage, .peer = peer};
  switch (tag & 0xf0000000) {
    case kTagAllGather:
      operation.kind = Kind::kGather;
      break;
    case kTagBroadcast:
      operation.kind = Kind::kBroadcast;
      break;
    case kTagStopVote:
      operation.kind = Kind::kStopVote;
      break;
    case kTagEvaluation:
      operation.kind = Kind::kEvaluation;
      break;
    case kTagRound:
      operation.kind = is_send ? Kind::kSend : Kind::kReceive;
      operation.bucket = static_cast<int>(tag >> 8 & 0xfffff);
      operation.round = static_cast<int>(tag & 0xff);
      break;
    default:
      break;
  }
  return operation;
}

}  // namespace dtrun::worker
