// Asks the other nodes, once, how many collectives their silent workers have begun, through the generation's
// store: each node that is about to call its workers hung says it there (agent/core/hang.h judges).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "agent/health/hang_guard.h"
#include "proto/control.pb.h"

namespace dtrun::agent {

class CountExchange {
 public:
  using Ask = std::function<void(const control::KvRequest&)>;
  using Counts = HangGuard::Counts;

  // Asks at once, as node `node` of `nodes` (at least 2) whose workers have begun `mine`. Its requests are
  // numbered from `first_id` on, one for each node. `done` is called by take() with the last answer, which
  // comes after `patience`, or once the store counts as lost.
  CountExchange(const Ask& ask, std::uint64_t first_id, int node, int nodes, std::uint64_t mine,
                std::chrono::milliseconds patience, std::function<void(const Counts&)> done);

  // The answer to a request, perhaps of an earlier exchange.
  void take(const control::KvReply& reply);

 private:
  const std::uint64_t first_id_;
  const std::function<void(const Counts&)> done_;
  Counts counts_;
  std::size_t awaited_;
};

}  // namespace dtrun::agent
