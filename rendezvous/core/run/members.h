// The members of a run: the agents that are connected to its coordinator. Finds a member by its connection,
// its member id and its given node rank. Pure bookkeeping.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "rendezvous/core/messages.h"

namespace dtrun::rendezvous {

struct Member {
  Join join;
  std::uint64_t order = 0;  // in which members joined
  Millis last_seen = 0;
  std::optional<Millis> overdue_since = {};  // when its present silence was noticed
  std::optional<int> seat = {};              // its group rank in the current generation, if it is part of it
  std::optional<int> previous_rank = {};     // its group rank in the newest generation that it was part of
  Heartbeat report = {};                     // the newest
  int workers = 0;      // that can take part in the next generation; those that still load cannot
  bool back = false;    // it, or another agent of its host, had been given up, and came back
  Millis ready_by = 0;  // for workers that pause now: when not to wait for its Ready any longer
};

class Members {
 public:
  // REQUIRES: neither the connection nor the member id is in use, nor the node rank if one is given.
  Member& add(ConnectionId connection, const Join& join, Millis now);
  void remove(ConnectionId connection);

  // Null if there is none.
  Member* find(ConnectionId connection);
  const Member* find(ConnectionId connection) const;
  const Member* with_node_rank(int node_rank) const;
  std::optional<ConnectionId> connection_of(const MemberId& id) const;

  bool contains(ConnectionId connection) const { return members_.contains(connection); }
  const Member& at(ConnectionId connection) const { return members_.at(connection); }
  Member& at(ConnectionId connection) { return members_.at(connection); }

  // Pairs of connection and member, by connection.
  auto begin() { return members_.begin(); }
  auto end() { return members_.end(); }
  auto begin() const { return members_.begin(); }
  auto end() const { return members_.end(); }

  int size() const { return static_cast<int>(members_.size()); }
  bool empty() const { return members_.empty(); }
  std::uint64_t joined_so_far() const { return joined_so_far_; }

 private:
  std::map<ConnectionId, Member> members_;
  std::map<MemberId, ConnectionId> by_id_;
  std::map<int, ConnectionId> by_node_rank_;  // given ones only
  std::uint64_t joined_so_far_ = 0;
};

}  // namespace dtrun::rendezvous
