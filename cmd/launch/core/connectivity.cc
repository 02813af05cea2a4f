#include "cmd/launch/core/connectivity.h"

#include <algorithm>
#include <map>

#include "proto/core/text.h"

namespace dtrun::cmd {

std::string gaps_text(const LaunchState& state, int index) {
  constexpr std::size_t kNamed = 3;
  std::vector<std::string> parts;
  for (const Gap& gap : state.hosts[static_cast<std::size_t>(index)].gaps) {
    const HostState& to = state.hosts[static_cast<std::size_t>(gap.to)];
    if (to.phase == HostPhase::kReady)
      parts.push_back(state.settings.hosts[static_cast<std::size_t>(gap.to)] + " on port " +
                      std::to_string(to.port) + " (" + gap.why + ")");
  }
  if (parts.empty()) return "";
  const std::size_t more = parts.size() - std::min(parts.size(), kNamed);
  parts.resize(parts.size() - more);
  return "does not reach " + join(parts) + (more > 0 ? " and " + std::to_string(more) + " more" : "");
}

std::optional<int> most_cut_off(const LaunchState& state) {
  const std::vector<int> ready = hosts_in(state, {HostPhase::kReady});
  std::map<int, int> gaps;
  for (const int index : ready)
    for (const Gap& gap : state.hosts[static_cast<std::size_t>(index)].gaps)
      if (std::ranges::count(ready, gap.to) > 0) {
        ++gaps[index];
        ++gaps[gap.to];
      }
  gaps.erase(*state.first);
  std::optional<int> most;
  for (const auto& [index, count] : gaps)
    if (!most || count >= gaps[*most]) most = index;
  return most;
}

std::string meeting_address(const LaunchState& state) {
  std::map<std::string, int> votes;
  for (const HostState& one : state.hosts)
    if (!one.address.empty()) ++votes[one.address];
  const std::vector<std::string>& own = state.hosts[static_cast<std::size_t>(*state.first)].addresses;
  std::string best = own.empty() ? "" : own.front();
  for (const std::string& address : own)
    if (votes[address] > votes[best]) best = address;
  return best;
}

std::vector<int> hosts_that_may_lead(const LaunchState& state) {
  constexpr std::size_t kWanted = 3;
  if (!state.settings.fails_over) return {};
  const auto meet = [&state](int one, int other) {
    const auto leads_to = [&state](int from, int to) {
      return std::ranges::none_of(state.hosts[static_cast<std::size_t>(from)].gaps,
                                  [to](const Gap& gap) { return gap.to == to; });
    };
    return leads_to(one, other) && leads_to(other, one);
  };
  std::vector<int> chosen{*state.first};
  for (const int index : hosts_in(state, {HostPhase::kReady})) {
    if (index == *state.first || chosen.size() == kWanted) continue;
    if (std::ranges::all_of(chosen, [&](int one) { return meet(one, index); })) chosen.push_back(index);
  }
  return chosen.size() == kWanted ? chosen : std::vector<int>();
}

}  // namespace dtrun::cmd
