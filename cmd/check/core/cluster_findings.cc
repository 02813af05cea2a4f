#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "cmd/check/core/blame.h"
#include "cmd/check/core/findings.h"
#include "proto/core/text.h"

namespace dtrun::cmd {
namespace {

// NVRx' threshold: slower than this part of the others is named.
constexpr double kSlow = 0.7;
// A round trip is named from this on beyond the others': smaller differences are scheduling noise.
constexpr double kLateMilliseconds = 5;

using Findings = std::vector<Finding>;

std::string milliseconds_text(double milliseconds) {
  return decimals(milliseconds, milliseconds < 9.5 ? 1 : 0) + " ms";
}

std::string rate_text(double megabits) {
  if (megabits >= 950) return decimals(megabits / 1000, megabits < 99'500 ? 1 : 0) + " Gbit/s";
  return decimals(megabits, megabits < 9.5 ? 1 : 0) + " Mbit/s";
}

// Not of none.
double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

Findings or_passed(Findings findings, const char* check, const std::string& text) {
  if (findings.empty()) findings.push_back({.check = check, .text = text});
  return findings;
}

class ClusterJudge {
 public:
  explicit ClusterJudge(const ClusterFacts& cluster)
      : cluster_(cluster),
        names_(names_of(cluster.nodes)),
        size_(static_cast<int>(cluster.nodes.size())),
        usual_round_trip_(usual(&PathFacts::round_trip, std::less<>())),
        usual_rate_(usual(&PathFacts::rate, std::greater<>())) {}

  ReportSection on_each_node() const;
  ReportSection between_nodes() const;

 private:
  const PathFacts& path(int from, int to) const {
    return cluster_.paths[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
  }
  const NodeFacts& node(int index) const { return cluster_.nodes[static_cast<std::size_t>(index)]; }
  const std::string& name(int index) const { return names_[static_cast<std::size_t>(index)]; }

  // The median over nodes of each node's best path: a bad node spoils most paths, but no other node's best.
  template <typename Better>
  std::optional<double> usual(double PathFacts::*value, Better better) const;
  bool is_late(int from, int to) const {
    return usual_round_trip_ && path(from, to).round_trip > 3 * *usual_round_trip_ + kLateMilliseconds;
  }
  std::optional<bool> is_slow(int from, int to) const;

  // One finding for each cause of bad paths, or one that passed. `tell` has the worst path of each, the one
  // for which `value` is largest, and says what was found and what to do.
  Findings judge(const char* check, Grade grade, const IsBad& bad,
                 const std::function<double(const PathFacts&)>& value, const std::string& if_none,
                 const std::function<Finding(const Blame&, const PathFacts&)>& tell) const;
  Findings names() const;
  Findings connections() const;
  Findings large_messages() const;
  Findings round_trips() const;
  Findings bandwidth() const;
  // Names the nodes whose value is not that of most; of two values held equally often the one of rank 0 is.
  Findings same(const char* check, Grade grade, const std::function<std::string(const NodeFacts&)>& value,
                const char* remedy) const;

  const ClusterFacts& cluster_;
  const std::vector<std::string> names_;
  const int size_;
  const std::optional<double> usual_round_trip_, usual_rate_;
};

template <typename Better>
std::optional<double> ClusterJudge::usual(double PathFacts::*value, Better better) const {
  std::vector<double> best;
  for (int one = 0; one < size_; ++one) {
    std::optional<double> of_node;
    for (int other = 0; other < size_; ++other)
      for (const double found : {path(one, other).*value, path(other, one).*value})
        if (found >= 0 && (!of_node || better(found, *of_node))) of_node = found;
    if (of_node) best.push_back(*of_node);
  }
  return best.empty() ? std::nullopt : std::optional(median(std::move(best)));
}

// A path that is late carries less in the same time: it is named for that alone. Nothing: the processor held
// it up.
std::optional<bool> ClusterJudge::is_slow(int from, int to) const {
  const PathFacts& one = path(from, to);
  if (!usual_rate_ || one.rate < 0 || is_late(from, to) || is_late(to, from)) return std::nullopt;
  const bool slow = one.rate < kSlow * *usual_rate_;
  return slow && one.rate_of_cpu ? std::nullopt : std::optional(slow);
}

Findings ClusterJudge::judge(const char* check, Grade grade, const IsBad& bad,
                             const std::function<double(const PathFacts&)>& value, const std::string& if_none,
                             const std::function<Finding(const Blame&, const PathFacts&)>& tell) const {
  Findings findings;
  for (const Blame& one : blame(size_, bad)) {
    const PathFacts* worst = nullptr;
    for (int from = 0; from < size_; ++from)
      for (int to = 0; to < size_; ++to)
        if (from != to && one.covers(from, to) && bad(from, to).value_or(false) &&
            (worst == nullptr || value(path(from, to)) > value(*worst)))
          worst = &path(from, to);
    Finding finding = tell(one, *worst);
    finding.check = check;
    finding.grade = grade;
    finding.text = subject_of(one, names_) + ": " + finding.text;
    findings.push_back(std::move(finding));
  }
  return or_passed(std::move(findings), check, if_none);
}

// Those that see something wrong, per node that they see.
Findings ClusterJudge::names() const {
  Findings findings;
  for (int to = 0; to < size_; ++to) {
    std::map<std::string, std::vector<std::string>> seen;
    for (int from = 0; from < size_; ++from)
      if (const std::string& wrong = path(from, to).wrong_name; !wrong.empty())
        seen[wrong].push_back(name(from));
    for (const auto& [what, by] : seen)
      findings.push_back(
          {.check = "names",
           .grade = Grade::kWarning,
           .text = name(to) + ": " + what + ", on " + join(by),
           .remedy = "/etc/hosts or the name service there: " + node(to).host + " is " + node(to).address});
  }
  return or_passed(std::move(findings), "names", "every node knows every other");
}

Findings ClusterJudge::connections() const {
  return judge(
      "connections", Grade::kFailed, [this](int from, int to) { return !path(from, to).failure.empty(); },
      [](const PathFacts&) { return 0; }, "TCP between all pairs, both ways",
      [this](const Blame& one, const PathFacts& worst) -> Finding {
        if (one.other < 0 || one.both_ways)
          return {.text = worst.failure,
                  .remedy = "a firewall, or another network? ip route and nft list ruleset on both ends"};
        return {.text = worst.failure + "; the other way works",
                .remedy = "a firewall on " + name(one.other) + "? allow TCP from " + node(one.node).address +
                          ", all ports from 1024 on"};
      });
}

Findings ClusterJudge::large_messages() const {
  return judge(
      "large messages", Grade::kFailed, [this](int from, int to) { return path(from, to).large_fails; },
      [](const PathFacts&) { return 0; }, "64 kB arrive everywhere",
      [this](const Blame& one, const PathFacts&) -> Finding {
        const NodeFacts& at = node(one.node);
        return {.text = "64 kB never arrive, small ones do",
                .remedy = "a part of the way carries smaller packets than its ends think (MTU " +
                          std::to_string(at.mtu) + "): ip link set dev " +
                          (at.interface.empty() ? "DEVICE" : at.interface) + " mtu " +
                          (at.mtu > 1500 ? "1500" : "1400") + " on " + name(one.node) +
                          ", or the switch's own"};
      });
}

Findings ClusterJudge::round_trips() const {
  if (!usual_round_trip_) return {};
  const std::string usual = milliseconds_text(*usual_round_trip_);
  return judge(
      "round trip", Grade::kWarning,
      [this](int from, int to) { return is_late(from, to) || is_late(to, from); },
      [](const PathFacts& path) { return path.round_trip; }, "about " + usual,
      [&](const Blame&, const PathFacts& worst) -> Finding {
        return {.text = milliseconds_text(worst.round_trip) + " at best, the others " + usual,
                .remedy = "its route: another site, a VPN, or a switch that queues (mtr)"};
      });
}

Findings ClusterJudge::bandwidth() const {
  if (!usual_rate_) return {};
  const std::string usual = rate_text(*usual_rate_);
  return judge(
      "bandwidth", Grade::kWarning, [this](int from, int to) { return is_slow(from, to); },
      [](const PathFacts& path) { return -path.rate; }, "about " + usual + " between any two",
      [&](const Blame& one, const PathFacts& worst) -> Finding {
        return {.text = rate_text(worst.rate) + ", the others " + usual,
                .remedy = "its cable or switch port (ethtool " + node(one.node).interface + ")"};
      });
}

Findings ClusterJudge::same(const char* check, Grade grade,
                            const std::function<std::string(const NodeFacts&)>& value,
                            const char* remedy) const {
  std::map<std::string, std::vector<std::string>> by_value;
  for (int i = 0; i < size_; ++i)
    if (const std::string one = value(node(i)); !one.empty()) by_value[one].push_back(name(i));
  if (by_value.empty()) return {};
  std::string usual;
  for (int i = 0; i < size_; ++i) {
    const std::string one = value(node(i));
    if (!one.empty() && (usual.empty() || by_value[one].size() > by_value[usual].size())) usual = one;
  }
  Findings findings;
  for (const auto& [one, nodes] : by_value)
    if (one != usual)
      findings.push_back({.check = check,
                          .grade = grade,
                          .text = one + ", the others have " + usual,
                          .remedy = remedy,
                          .nodes = nodes});
  return or_passed(std::move(findings), check, usual);
}

// Findings that several nodes share are told once.
ReportSection ClusterJudge::on_each_node() const {
  ReportSection section{.title = "on each of " + counted(size_, "node")};
  Findings passed;
  int count = 0;
  for (int i = 0; i < size_; ++i)
    for (Finding& finding : findings_of(node(i))) {
      Findings& alike = finding.grade == Grade::kPassed ? passed : section.findings;
      if (finding.grade == Grade::kPassed) finding.text = "on all nodes", ++count;
      auto found = std::ranges::find_if(alike, [&](const Finding& one) {
        return one.check == finding.check && one.grade == finding.grade && one.text == finding.text;
      });
      if (found == alike.end()) found = alike.insert(found, std::move(finding));
      if (&alike != &passed) found->nodes.push_back(name(i));
    }
  const Findings troubles = section.findings;
  std::ranges::copy_if(passed, std::back_inserter(section.findings), [&](const Finding& one) {
    return std::ranges::find(troubles, one.check, &Finding::check) == troubles.end();
  });
  section.note = std::to_string(count) + " passed";
  return section;
}

ReportSection ClusterJudge::between_nodes() const {
  ReportSection section{.title = "between nodes",
                        .note = std::to_string(size_) + " of " + std::to_string(cluster_.wanted) + " came"};
  if (size_ < 2) return section;
  const auto mtu = [](const NodeFacts& at) { return at.mtu < 0 ? "" : "MTU " + std::to_string(at.mtu); };
  for (const Findings& findings :
       {names(), connections(), large_messages(), round_trips(), bandwidth(),
        same("dtrun", Grade::kFailed, &NodeFacts::dtrun, "the same dtrun on all nodes"),
        same("config", Grade::kFailed, &NodeFacts::config, "the same config file and overrides on all nodes"),
        same("processors", Grade::kFailed, &NodeFacts::processor,
             "nodes of one kind: these would give other bits (train.allow_mixed_devices gives the promise "
             "up)"),
        same("MTU", Grade::kWarning, mtu, "ip link set dev DEVICE mtu N")})
    std::ranges::copy(findings, std::back_inserter(section.findings));
  return section;
}

}  // namespace

std::vector<std::string> names_of(const std::vector<NodeFacts>& nodes) {
  std::vector<std::string> names;
  for (const NodeFacts& node : nodes) {
    const bool alone = std::ranges::count(nodes, node.host, &NodeFacts::host) == 1;
    names.push_back(node.host + (alone ? "" : " (rank " + std::to_string(names.size()) + ")"));
  }
  return names;
}

std::vector<int> slow_paths(const std::vector<PathFacts>& paths, const std::vector<double>& best) {
  constexpr std::size_t kMostNamed = 8, kMostUnknown = 2;
  std::vector<double> known;
  std::ranges::copy_if(best, std::back_inserter(known), [](double rate) { return rate >= 0; });
  if (known.empty()) return {};
  const double limit = kSlow * median(std::move(known));
  const auto rate = [&](int to) { return paths[static_cast<std::size_t>(to)].rate; };
  std::vector<int> slow, unknown;
  for (int to = 0; to < std::ssize(paths); ++to)
    if (rate(to) >= 0 && rate(to) < limit)
      (paths[static_cast<std::size_t>(to)].rate_of_cpu ? unknown : slow).push_back(to);
  std::ranges::stable_sort(slow, {}, rate);
  std::ranges::stable_sort(unknown, {}, rate);
  slow.resize(std::min(slow.size(), kMostNamed));
  unknown.resize(std::min(unknown.size(), kMostUnknown));
  slow.insert(slow.end(), unknown.begin(), unknown.end());
  return slow;
}

Report cluster_report(const ClusterFacts& cluster) {
  const ClusterJudge judge(cluster);
  return {.sections = {judge.on_each_node(), judge.between_nodes()},
          .missing = std::max(0, cluster.wanted - static_cast<int>(cluster.nodes.size()))};
}

}  // namespace dtrun::cmd
