#include "rendezvous/core/lineup.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "rendezvous/core/ranks.h"

namespace dtrun::rendezvous {
namespace {

// The members that take part, in join order.
std::vector<ConnectionId> choose(const Members& members, int max_nodes) {
  struct Candidate {
    bool newcomer, any_rank;
    std::uint64_t order;
    ConnectionId id;
  };
  std::vector<Candidate> candidates;
  for (const auto& [id, member] : members)
    candidates.push_back(
        {.newcomer = !member.seat, .any_rank = member.join.node_rank < 0, .order = member.order, .id = id});
  const auto earlier = [](const Candidate& a, const Candidate& b) { return a.order < b.order; };
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.newcomer, a.any_rank, a.order) < std::tie(b.newcomer, b.any_rank, b.order);
  });
  const auto places = static_cast<std::size_t>(max_nodes);
  if (candidates.size() > places) candidates.resize(places);
  std::sort(candidates.begin(), candidates.end(), earlier);
  std::vector<ConnectionId> chosen;
  for (const Candidate& candidate : candidates) chosen.push_back(candidate.id);
  return chosen;
}

RankRequest request_of(const Member& member) {
  RankRequest request{
      .host = member.join.host, .nproc = member.join.nproc, .previous_rank = member.previous_rank};
  if (member.join.node_rank >= 0) request.node_rank = member.join.node_rank;
  return request;
}

}  // namespace

Lineup line_up(const Members& members, int max_nodes) {
  const std::vector<ConnectionId> chosen = choose(members, max_nodes);
  std::vector<RankRequest> requests;
  for (ConnectionId id : chosen) requests.push_back(request_of(members.at(id)));
  const std::vector<Rank> ranks = assign_ranks(requests);

  Lineup lineup;
  lineup.members.resize(chosen.size());
  lineup.nodes.resize(chosen.size());
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const Join& join = members.at(chosen[i]).join;
    const auto rank = static_cast<std::size_t>(ranks[i].group_rank);
    lineup.members[rank] = chosen[i];
    lineup.nodes[rank] = {.host = join.host,
                          .address = join.address,
                          .nproc = join.nproc,
                          .first_rank = ranks[i].first_rank,
                          .member_id = join.member_id};
    lineup.world_size += join.nproc;
  }
  return lineup;
}

}  // namespace dtrun::rendezvous
