// What the nodes of a run said of their workers while it was traced, and what of it is still missing: the
// answers that the coordinator gave to `dtrun trace`. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cmd/trace/clock.h"
#include "proto/core/operation.h"
#include "proto/rendezvous.pb.h"

namespace dtrun::cmd {

// An operation as its worker said it, by its node's clock.
struct TracedOperation {
  Operation operation;
  std::uint64_t node = 0;
  int pid = 0;
};

class TraceRecord {
 public:
  void add(const rendezvous::v1::TraceReply& reply);

  // Every rank of the newest generation has ended this many steps since the trace began.
  bool has(int steps) const;
  // Nodes have more that had no room in the newest answer.
  bool more() const { return more_; }
  // A node refuses: a sentence; empty: none does.
  const std::string& refusal() const { return refusal_; }
  // Sentences on what is not in the record, which a reader might take for what did not happen.
  std::vector<std::string> missing(int steps) const;

  int world_size() const { return world_size_; }
  const std::map<int, std::vector<TracedOperation>>& ranks() const { return ranks_; }
  std::string host_of(std::uint64_t node) const;
  // Nothing for a node that never answered.
  std::map<std::uint64_t, ClockOffset> offsets() const;
  // ns by which times of two nodes may be wrong against each other; 0 if there is one.
  std::int64_t clock_error() const;

 private:
  int steps_of(int rank) const;

  int world_size_ = 0;
  bool more_ = false;
  std::string refusal_;
  std::map<int, std::vector<TracedOperation>> ranks_;  // in the order in which they were told
  std::map<std::uint64_t, std::string> hosts_;         // by node
  std::map<std::uint64_t, std::vector<ClockSample>> samples_;
  std::map<int, std::int64_t> lost_;  // operations by rank
  std::set<std::string> silent_;      // hosts, ever
};

}  // namespace dtrun::cmd
