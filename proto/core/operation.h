// What one worker exchanges with its peers, operation by operation, and while it is traced also what else it
// does (proto/base/operation_ring.h). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace dtrun {

struct Operation {
  enum class Kind : std::uint32_t {
    kReceive,  // of a bucket's round
    kSend,     // of a bucket's round
    kConnect,  // the ranks meet
    kGather,
    kBroadcast,
    kStopVote,
    kEvaluation,
    kMessage,  // another one
    kDevices,  // between GPUs: the end of a step's exchange
    // Only of a trace. An evaluation has no peer.
    kStep,
    kData,  // of a lane's microbatch, as is the next
    kMath,
    kWait,      // for the device
    kExchange,  // its end, once nothing else is left to do
    kUpdate,
    kSave,   // training waits for it
    kWrite,  // of a checkpoint, beside training
    kCount,
  };
  enum class State : std::uint32_t { kDone, kBroken, kWaits };  // kBroken: it has failed, or was given up

  std::int64_t generation = 0;
  std::int64_t step = 0;  // done before the operation
  Kind kind = Kind::kMessage;
  State state = State::kDone;
  int bucket = -1;         // of a kReceive or kSend; -1: none
  int round = -1;          // the same; -1: the ranks share memory, or none
  int peer = -1;           // rank in that generation; -1: all others
  int lane = -1;           // -1: none
  std::int64_t began = 0;  // ns of CLOCK_MONOTONIC, the same for all processes of a host
  std::int64_t ended = 0;  // of an operation that does not wait any more

  bool operator==(const Operation&) const = default;
};
const char* name_of(Operation::Kind kind);
const char* name_of(Operation::State state);

// The operation that has waited for the longest time; nothing if none waits.
std::optional<Operation> longest_wait(const std::vector<Operation>& operations);

}  // namespace dtrun
