#include "rendezvous/core/run/members.h"

namespace dtrun::rendezvous {

Member& Members::add(ConnectionId connection, const Join& join, Millis now) {
  by_id_[join.member_id] = connection;
  if (join.node_rank >= 0) by_node_rank_[join.node_rank] = connection;
  Member member{.join = join, .order = joined_so_far_++, .last_seen = now};
  return members_.emplace(connection, std::move(member)).first->second;
}

void Members::remove(ConnectionId connection) {
  const auto removed = members_.extract(connection);
  if (removed.empty()) return;
  by_id_.erase(removed.mapped().join.member_id);
  by_node_rank_.erase(removed.mapped().join.node_rank);
}

Member* Members::find(ConnectionId connection) {
  const auto found = members_.find(connection);
  return found == members_.end() ? nullptr : &found->second;
}

const Member* Members::find(ConnectionId connection) const {
  const auto found = members_.find(connection);
  return found == members_.end() ? nullptr : &found->second;
}

const Member* Members::with_node_rank(int node_rank) const {
  const auto found = by_node_rank_.find(node_rank);
  return found == by_node_rank_.end() ? nullptr : find(found->second);
}

std::optional<ConnectionId> Members::connection_of(const MemberId& id) const {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return std::nullopt;
  return found->second;
}

}  // namespace dtrun::rendezvous
