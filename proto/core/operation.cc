#include "proto/core/operation.h"

#include <cstddef>
#include <iterator>

namespace dtrun {

const char* name_of(Operation::Kind kind) {
  static constexpr const char* kNames[] = {
      "receive", "send", "connect", "gather", "broadcast", "stop_vote", "evaluation", "message", "devices",
      "step",    "data", "math",    "wait",   "exchange",  "update",    "save",       "write"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(Operation::Kind::kCount));
  return kNames[kind < Operation::Kind::kCount ? static_cast<std::size_t>(kind)
                                               : static_cast<std::size_t>(Operation::Kind::kMessage)];
}

const char* name_of(Operation::State state) {
  switch (state) {
    case Operation::State::kWaits:
      return "waits";
    case Operation::State::kDone:
      return "done";
    case Operation::State::kBroken:
      break;
  }
  return "broken";
}

std::optional<Operation> longest_wait(const std::vector<Operation>& operations) {
  std::optional<Operation> longest;
  for (const Operation& each : operations)
    if (each.state == Operation::State::kWaits && (!longest || each.began < longest->began)) longest = each;
  return longest;
}

}  // namespace dtrun
