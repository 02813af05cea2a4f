#include "rendezvous/core/run/rank_assignment.h"

#include <algorithm>
#include <tuple>

#include "rendezvous/core/run/ranks.h"

namespace dtrun::rendezvous {
namespace {

// The members that take part, in join order. `warm`: only those that have workers.
std::vector<ConnectionId> choose(const Members& members, int max_nodes, bool warm) {
  struct Applicant {
    bool newcomer, any_rank;
    std::uint64_t order;
    ConnectionId id;
  };
  std::vector<Applicant> applicants;
  for (const auto& [id, member] : members) {
    if (warm && member.workers == 0) continue;
    applicants.push_back(
        {.newcomer = !member.seat, .any_rank = member.join.node_rank < 0, .order = member.order, .id = id});
  }
  const auto earlier = [](const Applicant& a, const Applicant& b) { return a.order < b.order; };
  std::sort(applicants.begin(), applicants.end(), [](const Applicant& a, const Applicant& b) {
    return std::tie(a.newcomer, a.any_rank, a.order) < std::tie(b.newcomer, b.any_rank, b.order);
  });
  const auto places = static_cast<std::size_t>(max_nodes);
  if (applicants.size() > places) applicants.resize(places);
  std::sort(applicants.begin(), applicants.end(), earlier);
  std::vector<ConnectionId> chosen;
  for (const Applicant& applicant : applicants) chosen.push_back(applicant.id);
  return chosen;
}

RankRequest request_of(const Member& member, int nproc) {
  RankRequest request{.host = member.join.host,
                      .nproc = nproc,
                      .previous_rank = member.previous_rank,
                      .topology = member.join.topology,
                      .preferred_rank = member.join.preferred_rank};
  if (member.join.node_rank >= 0) request.node_rank = member.join.node_rank;
  return request;
}

}  // namespace

RankAssignment line_up(const Members& members, int max_nodes) {
  const bool warm = std::any_of(members.begin(), members.end(),
                                [](const auto& member) { return member.second.workers > 0; });
  const std::vector<ConnectionId> chosen = choose(members, max_nodes, warm);
  std::vector<RankRequest> requests;
  for (ConnectionId id : chosen) {
    const Member& member = members.at(id);
    requests.push_back(request_of(member, warm ? member.workers : member.join.nproc));
  }
  const std::vector<Rank> ranks = assign_ranks(requests);

  RankAssignment rank_assignment;
  rank_assignment.members.resize(chosen.size());
  rank_assignment.nodes.resize(chosen.size());
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const Join& join = members.at(chosen[i]).join;
    const auto rank = static_cast<std::size_t>(ranks[i].group_rank);
    rank_assignment.members[rank] = chosen[i];
    rank_assignment.nodes[rank] = {.host = join.host,
                                   .address = join.address,
                                   .nproc = requests[i].nproc,
                                   .first_rank = ranks[i].first_rank,
                                   .member_id = join.member_id};
    rank_assignment.world_size += requests[i].nproc;
  }
  return rank_assignment;
}

}  // namespace dtrun::rendezvous
