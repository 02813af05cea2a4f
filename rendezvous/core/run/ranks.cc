#include "rendezvous/core/run/ranks.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <tuple>
#include <unordered_map>

namespace dtrun::rendezvous {
namespace {

constexpr int kFree = -1;
using Slots = std::vector<int>;  // group rank -> index of the node, or kFree

// Indices of the nodes that have the `key`, sorted by it; ties in join order.
std::vector<int> sorted_by(const std::vector<RankRequest>& nodes, std::optional<int> RankRequest::*key) {
  std::vector<int> indices;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].*key) indices.push_back(static_cast<int>(i));
  std::stable_sort(indices.begin(), indices.end(),
                   [&](int a, int b) { return nodes[a].*key < nodes[b].*key; });
  return indices;
}

// Given node ranks, moved down as far as needed where fewer nodes than the maximum take part.
Slots place_given(const std::vector<RankRequest>& nodes) {
  Slots slots(nodes.size(), kFree);
  const std::vector<int> given = sorted_by(nodes, &RankRequest::node_rank);
  int limit = static_cast<int>(nodes.size());
  for (auto node = given.rbegin(); node != given.rend(); ++node) {
    limit = std::min(*nodes[*node].node_rank, limit - 1);
    slots[limit] = *node;
  }
  return slots;
}

// The nodes without a given rank in the order that previous ranks and join order ask for.
std::vector<int> preferred_order(const std::vector<RankRequest>& nodes, Slots slots) {
  const Slots given = slots;
  std::vector<int> homeless;
  for (int node : sorted_by(nodes, &RankRequest::previous_rank)) {
    const auto rank = static_cast<std::size_t>(*nodes[node].previous_rank);
    if (nodes[node].node_rank) continue;
    if (rank < slots.size() && slots[rank] == kFree)
      slots[rank] = node;
    else
      homeless.push_back(node);
  }
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (!nodes[i].node_rank && !nodes[i].previous_rank) homeless.push_back(static_cast<int>(i));
  const auto key_of = [&](int node) {
    const RankRequest& request = nodes[node];
    return std::tuple<const std::string&, bool, int>(request.topology, !request.preferred_rank,
                                                     request.preferred_rank.value_or(0));
  };
  std::stable_sort(homeless.begin(), homeless.end(), [&](int a, int b) { return key_of(a) < key_of(b); });

  std::vector<int> order;
  auto next = homeless.begin();
  for (std::size_t slot = 0; slot < slots.size(); ++slot)
    if (given[slot] == kFree) order.push_back(slots[slot] != kFree ? slots[slot] : *next++);
  return order;
}

// Hands out the nodes without a given rank one by one, host by host where it can.
class HostQueue {
 public:
  HostQueue(const std::vector<RankRequest>& nodes, const Slots& given, const std::vector<int>& order)
      : nodes_(nodes), order_(order), taken_(nodes.size(), false) {
    for (int node : order) by_host_[nodes[node].host].push_back(node);
    for (int node : given)
      if (node != kFree) anchored_[nodes[node].host] = true;
  }

  bool has(int neighbour) const {
    if (neighbour == kFree) return false;
    const auto found = by_host_.find(nodes_[neighbour].host);
    return found != by_host_.end() && !found->second.empty();
  }

  int take_from_host_of(int neighbour) {
    std::deque<int>& queue = by_host_[nodes_[neighbour].host];
    const int node = queue.front();
    queue.pop_front();
    taken_[node] = true;
    return node;
  }

  // A host that has a given rank elsewhere waits for the slot next to it, while others can take this one.
  int take_next() {
    const int node = first_untaken(&free_cursor_, true);
    return take_from_host_of(node != kFree ? node : first_untaken(&any_cursor_, false));
  }

 private:
  int first_untaken(std::size_t* cursor, bool skip_anchored) {
    for (; *cursor < order_.size(); ++*cursor) {
      const int node = order_[*cursor];
      if (!taken_[node] && !(skip_anchored && anchored_.contains(nodes_[node].host))) return node;
    }
    return kFree;
  }

  const std::vector<RankRequest>& nodes_;
  const std::vector<int>& order_;
  std::vector<bool> taken_;
  std::unordered_map<std::string, std::deque<int>> by_host_;
  std::unordered_map<std::string, bool> anchored_;
  std::size_t free_cursor_ = 0;
  std::size_t any_cursor_ = 0;
};

Slots place_all(const std::vector<RankRequest>& nodes) {
  const Slots given = place_given(nodes);
  const std::vector<int> order = preferred_order(nodes, given);
  HostQueue queue(nodes, given, order);
  Slots slots = given;
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    if (slots[slot] != kFree) continue;
    const int before = slot > 0 ? slots[slot - 1] : kFree;
    const int after = slot + 1 < slots.size() ? given[slot + 1] : kFree;
    if (queue.has(before))
      slots[slot] = queue.take_from_host_of(before);
    else
      slots[slot] = queue.has(after) ? queue.take_from_host_of(after) : queue.take_next();
  }
  return slots;
}

}  // namespace

std::vector<Rank> assign_ranks(const std::vector<RankRequest>& nodes) {
  const Slots slots = place_all(nodes);
  std::vector<Rank> ranks(nodes.size());
  int first = 0;
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    ranks[slots[slot]] = {.group_rank = static_cast<int>(slot), .first_rank = first};
    first += nodes[slots[slot]].nproc;
  }
  return ranks;
}

}  // namespace dtrun::rendezvous
