#include "rendezvous/core/observe/slow_network.h"

#include <cmath>
#include <map>
#include <set>

#include "proto/core/text.h"

namespace dtrun::rendezvous {
namespace {

// A host stands out from the others; a path from the next one, since who is late for one peer is so for all a
// step later.
constexpr double kTimesOtherHosts = 2;
constexpr double kTimesNextPath = 1.6;

using HostPair = std::pair<std::string, std::string>;  // of hosts, the lesser first

// Seconds of a step that two hosts wait for each other, as the mean of their pairs of ranks; both directions
// together.
std::map<HostPair, double> waits_between(const Window& window) {
  std::map<HostPair, std::pair<double, int>> sums;
  for (const WindowPart& one : window)
    for (const WindowPart& other : window) {
      if (one.host >= other.host) continue;
      auto& [sum, count] = sums[{one.host, other.host}];
      sum += one.wait_for[static_cast<std::size_t>(other.rank)] +
             other.wait_for[static_cast<std::size_t>(one.rank)];
      ++count;
    }
  std::map<HostPair, double> means;
  for (const auto& [pair, sum] : sums) means[pair] = sum.first / sum.second;
  return means;
}

bool is_end(const HostPair& pair, const std::string& host) {
  return pair.first == host || pair.second == host;
}

class Network {
 public:
  explicit Network(const Window& window) : waits_(waits_between(window)) {
    for (const WindowPart& part : window) hosts_.insert(part.host), step_ += part.step();
    step_ /= static_cast<double>(window.size());
  }

  std::optional<Straggler> judge() const {
    if (hosts_.size() < 3) return std::nullopt;
    if (auto path = slow_path()) return path;
    return slow_host();
  }

 private:
  // Both wait for each other, so each for half of the time.
  std::optional<Straggler> slow_path() const {
    const auto slowest = std::ranges::max_element(waits_, {}, [](const auto& each) { return each.second; });
    double next = 0;
    for (const auto& [pair, seconds] : waits_)
      if (pair != slowest->first) next = std::max(next, seconds);
    if (slowest->second < kTimesNextPath * next) return std::nullopt;
    const auto& [one, other] = slowest->first;
    return found("the network between " + one + " and " + other, slowest->second / 2,
                 "their messages to each other are late by ");
  }

  // The least of its waits is what all its peers have in common. Each peer waits for this host alone, but
  // this one's wait is spread over all of them.
  std::optional<Straggler> slow_host() const {
    std::string slowest;
    double most = -1, usual = 0;
    for (const std::string& host : hosts_) {
      double least = INFINITY;
      std::vector<double> without;
      for (const auto& [pair, seconds] : waits_) {
        if (is_end(pair, host))
          least = std::min(least, seconds);
        else
          without.push_back(seconds);
      }
      if (least > most) slowest = host, most = least, usual = median(std::move(without));
    }
    if (most < kTimesOtherHosts * usual) return std::nullopt;
    const double peers = static_cast<double>(hosts_.size() - 1);
    return found("the network of " + slowest, (most - usual) * peers / (peers + 1),
                 "its messages, or those to it, are late by ");
  }

  std::optional<Straggler> found(std::string who, double late, const std::string& why) const {
    const double loss = step_ > 0 ? late / step_ : 0;
    if (!(loss >= kStragglerLoss)) return std::nullopt;
    return Straggler{std::move(who),
                     {.text = why + decimals(late * 1000, 1) + " ms in each step",
                      .rank = -1,
                      .cause = "network",
                      .loss = std::min(1.0, loss)}};
  }

  const std::map<HostPair, double> waits_;
  std::set<std::string> hosts_;
  double step_ = 0;
};

// Of each rank's step.
constexpr double kMuchCommunication = 0.25;
// Ranks that are ready to run without a processor for half as long come late by turns.
constexpr double kLateByTurns = 0.5;

}  // namespace

std::optional<Straggler> judge_network(const Window& window) {
  const bool told = !window.empty() && std::ranges::all_of(window, [&](const WindowPart& part) {
    return part.wait_for.size() == window.size();
  });
  return told ? Network(window).judge() : std::nullopt;
}

std::optional<Straggler> judge_communication(const Window& window) {
  if (window.size() < 2) return std::nullopt;
  double least = 1;
  std::vector<double> without_cpu;
  for (const WindowPart& part : window) {
    least = std::min(least, part.step() > 0 ? part.wait_peers / part.step() : 0);
    without_cpu.push_back(part.cpu_wait);
  }
  if (least < kMuchCommunication || median(std::move(without_cpu)) >= kLateByTurns * least)
    return std::nullopt;
  return Straggler{.who = "communication",
                   .verdict = {.text = "a larger batch, or fewer ranks, would make that less",
                               .rank = -1,
                               .cause = kCommunication,
                               .loss = least},
                   .does = "takes " + decimals(100 * least, 0) + " % of a step on all ranks"};
}

}  // namespace dtrun::rendezvous
