#include "cmd/doctor/core/cluster_checks.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>

#include "cmd/doctor/core/node_checks.h"
#include "cmd/doctor/core/words.h"
#include "proto/core/text.h"

namespace dtrun::doctor {
namespace {

// NVRx' threshold: slower than this part of the others is named.
constexpr double kSlow = 0.7;
// A round trip is named from this on beyond the others': less is what a busy machine does to anybody.
constexpr double kLateMilliseconds = 5;

using Findings = std::vector<Finding>;

class Judge {
 public:
  explicit Judge(const ClusterFacts& cluster)
      : cluster_(cluster), names_(names_of(cluster)), size_(static_cast<int>(cluster.nodes.size())) {}

  const PathFacts& path(int from, int to) const {
    return cluster_.paths[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
  }
  const NodeFacts& node(int index) const { return cluster_.nodes[static_cast<std::size_t>(index)]; }
  const std::string& name(int index) const { return names_[static_cast<std::size_t>(index)]; }
  const std::vector<std::string>& names() const { return names_; }
  int size() const { return size_; }

  bool reached(int from, int to) const { return path(from, to).failure.empty(); }
  bool arrived(int from, int to) const { return reached(from, to) && path(from, to).large.empty(); }
  bool is_late(int from, int to) const {
    const double least = path(from, to).round_trip_least;
    return usual_round_trip_ && least > 3 * *usual_round_trip_ + kLateMilliseconds;
  }
  // A path that is late carries less in the same time: it is named for that alone. Nothing: the processor
  // held it up.
  std::optional<bool> is_slow(int from, int to) const {
    const PathFacts& one = path(from, to);
    if (!usual_rate_ || one.rate < 0 || is_late(from, to) || is_late(to, from)) return std::nullopt;
    const bool slow = one.rate < kSlow * *usual_rate_;
    return slow && one.rate_of_cpu ? std::nullopt : std::optional(slow);
  }
  std::optional<double> usual_round_trip() const { return usual_round_trip_; }
  std::optional<double> usual_rate() const { return usual_rate_; }

  Judge& measure() {
    usual_round_trip_ = usual([](const PathFacts& one) { return -one.round_trip_least; });
    if (usual_round_trip_) usual_round_trip_ = -*usual_round_trip_;
    usual_rate_ = usual([](const PathFacts& one) { return one.rate; });
    if (usual_rate_ && *usual_rate_ <= 0) usual_rate_.reset();
    return *this;
  }

  std::vector<Blame> blamed(const IsBad& bad) const { return blame(size_, bad); }

  // The values of the paths that it stands for, largest first.
  double worst(const Blame& blame, const std::function<double(const PathFacts&)>& value) const {
    double most = std::numeric_limits<double>::lowest();
    for (int from = 0; from < size_; ++from)
      for (int to = 0; to < size_; ++to)
        if (from != to && covers(blame, from, to)) most = std::max(most, value(path(from, to)));
    return most;
  }
  static bool covers(const Blame& blame, int from, int to) {
    using enum Blame::Kind;
    const bool path = from == blame.node && to == blame.other;
    const bool back = to == blame.node && from == blame.other;
    return blame.kind == kNode   ? from == blame.node || to == blame.node
           : blame.kind == kTo   ? to == blame.node
           : blame.kind == kFrom ? from == blame.node
                                 : path || (blame.kind == kBothWays && back);
  }
  Finding about(const char* check, Grade grade, const Blame& blame, std::string text,
                std::string remedy) const {
    Finding finding{.check = check,
                    .grade = grade,
                    .text = subject_of(blame, names_) + ": " + std::move(text),
                    .remedy = std::move(remedy)};
    return finding;
  }

 private:
  // What most nodes reach with some other: the paths of a bad node may be most of all.
  std::optional<double> usual(const std::function<double(const PathFacts&)>& goodness) const {
    std::vector<double> best;
    for (int node = 0; node < size_; ++node) {
      std::optional<double> most;
      for (int other = 0; other < size_; ++other) {
        if (other == node) continue;
        for (const PathFacts* one : {&path(node, other), &path(other, node)})
          if (one->round_trip_least >= 0) most = std::max(most.value_or(goodness(*one)), goodness(*one));
      }
      if (most) best.push_back(*most);
    }
    if (best.empty()) return std::nullopt;
    return median_of(std::move(best));
  }

  const ClusterFacts& cluster_;
  const std::vector<std::string> names_;
  const int size_;
  std::optional<double> usual_round_trip_, usual_rate_;
};

Finding passed_check(const char* check, std::string text) {
  return {.check = check, .grade = Grade::kPassed, .text = std::move(text), .remedy = {}};
}

Findings or_passed(Findings findings, const char* check, std::string text) {
  if (findings.empty()) findings.push_back(passed_check(check, std::move(text)));
  return findings;
}

// Those that see something wrong, per node that they see.
Findings check_names(const Judge& judge) {
  Findings findings;
  for (int to = 0; to < judge.size(); ++to) {
    std::map<std::pair<bool, std::string>, std::vector<std::string>> seen;
    for (int from = 0; from < judge.size(); ++from)
      if (const PathFacts& path = judge.path(from, to); from != to && !path.wrong_name.empty())
        seen[{path.name_fails, path.wrong_name}].push_back(judge.name(from));
    for (const auto& [what, by] : seen)
      findings.push_back({.check = "names",
                          .grade = Grade::kWarning,
                          .text = judge.name(to) + ": " + what.second + ", on " + join(by),
                          .remedy = "/etc/hosts or the name service there: " + judge.node(to).name.host +
                                    " is " + judge.node(to).route.address});
  }
  return or_passed(std::move(findings), "names", "every node knows every other, there and back");
}

Findings check_connections(const Judge& judge) {
  Findings findings;
  using enum Blame::Kind;
  for (const Blame& one : judge.blamed([&](int from, int to) { return !judge.reached(from, to); })) {
    const bool both = one.kind == kNode || one.kind == kBothWays;
    std::string why;
    for (int from = 0; from < judge.size(); ++from)
      for (int to = 0; to < judge.size(); ++to)
        if (from != to && why.empty() && Judge::covers(one, from, to)) why = judge.path(from, to).failure;
    const int sender = one.kind == kTo ? -1 : one.node, receiver = one.kind == kPath ? one.other : one.node;
    const std::string from = sender >= 0 ? " from " + judge.node(sender).route.address : " from the others";
    const std::string remedy =
        one.kind == kFrom ? "a firewall on its way out? its route to the others (ip route)"
        : both            ? "a firewall, or another network? ip route and nft list ruleset on both ends"
               : "a firewall on " + judge.name(receiver) + "? allow TCP" + from + ", all ports from 1024 on";
    findings.push_back(
        judge.about("connections", Grade::kFailed, one, why + (both ? "" : "; the other way works"), remedy));
  }
  return or_passed(std::move(findings), "connections", "TCP between all pairs, both ways");
}

Findings check_large(const Judge& judge) {
  Findings findings;
  const auto lost = [&](int from, int to) {
    return judge.reached(from, to) && !judge.path(from, to).large.empty();
  };
  for (const Blame& one : judge.blamed(lost)) {
    std::string why;
    for (int from = 0; from < judge.size(); ++from)
      for (int to = 0; to < judge.size(); ++to)
        if (from != to && why.empty() && lost(from, to) && Judge::covers(one, from, to))
          why = judge.path(from, to).large;
    const RouteFacts& route = judge.node(one.node).route;
    findings.push_back(judge.about(
        "large messages", Grade::kFailed, one, why + ", small ones do",
        "a part of the way carries smaller packets than its ends think (MTU " + std::to_string(route.mtu) +
            "): ip link set dev " + (route.interface.empty() ? "DEVICE" : route.interface) + " mtu " +
            (route.mtu > 1500 ? "1500" : "1400") + " on " + judge.name(one.node) + ", or the switch's own"));
  }
  return or_passed(std::move(findings), "large messages", "64 kB arrive everywhere");
}

Findings check_round_trips(const Judge& judge) {
  if (!judge.usual_round_trip()) return {};
  Findings findings;
  for (const Blame& one :
       judge.blamed([&](int from, int to) { return judge.is_late(from, to) || judge.is_late(to, from); })) {
    const double median = judge.worst(one, [](const PathFacts& path) { return path.round_trip; });
    const double p99 = judge.worst(one, [](const PathFacts& path) { return path.round_trip_p99; });
    findings.push_back(judge.about("round trip", Grade::kWarning, one,
                                   milliseconds_text(median) + " (p99 " + milliseconds_text(p99) +
                                       "), the others " + milliseconds_text(*judge.usual_round_trip()),
                                   "its route: another site, a VPN, or a switch that queues (mtr)"));
  }
  return or_passed(std::move(findings), "round trip",
                   "about " + milliseconds_text(*judge.usual_round_trip()) + " at best");
}

Findings check_bandwidth(const Judge& judge) {
  if (!judge.usual_rate()) return {};
  Findings findings;
  for (const Blame& one : judge.blamed([&](int from, int to) { return judge.is_slow(from, to); })) {
    const double rate =
        -judge.worst(one, [](const PathFacts& path) { return path.rate < 0 ? -1e18 : -path.rate; });
    const RouteFacts& route = judge.node(one.node).route;
    findings.push_back(judge.about(
        "bandwidth", Grade::kWarning, one, rate_text(rate) + ", the others " + rate_text(*judge.usual_rate()),
        "cable or switch port" + (route.speed > 0 ? ": its link is " + rate_text(route.speed)
                                                  : " (ethtool " + route.interface + ")")));
  }
  return or_passed(std::move(findings), "bandwidth",
                   "about " + rate_text(*judge.usual_rate()) + " between any two");
}

// Offsets as rank 0 measured them: one clock is enough to compare with.
Findings check_clocks(const Judge& judge) {
  constexpr double kMuch = 1;
  Findings findings;
  double most = 0;
  std::vector<double> offsets{0};
  for (int to = 1; to < judge.size(); ++to)
    if (judge.path(0, to).round_trip >= 0) offsets.push_back(judge.path(0, to).clock_offset);
  const double usual = median_of(offsets);
  for (int to = 0; to < judge.size(); ++to) {
    if (to > 0 && judge.path(0, to).round_trip < 0) continue;
    const double offset = (to == 0 ? 0 : judge.path(0, to).clock_offset) - usual;
    most = std::max(most, std::abs(offset));
    if (std::abs(offset) >= kMuch)
      findings.push_back({.check = "clocks",
                          .grade = Grade::kWarning,
                          .text = judge.name(to) + ": " + decimals(std::abs(offset), 1) + " s " +
                                  (offset > 0 ? "ahead" : "behind"),
                          .remedy = "run chrony there: logs of several nodes cannot be read together"});
  }
  return or_passed(std::move(findings), "clocks", "within " + milliseconds_text(1000 * most));
}

// A value that all nodes should share.
struct Sameness {
  const char* check;
  Grade grade;
  std::function<std::string(const NodeFacts&)> value;
  const char* remedy;
};

// Nodes whose value is not that of most; of two values held equally often the one of rank 0 is.
Findings check_same(const Judge& judge, const Sameness& what) {
  std::map<std::string, std::vector<std::string>> by_value;
  std::string usual;
  for (int i = 0; i < judge.size(); ++i)
    if (const std::string value = what.value(judge.node(i)); !value.empty())
      by_value[value].push_back(judge.name(i));
  if (by_value.empty()) return {};
  for (int i = 0; i < judge.size(); ++i) {
    const std::string value = what.value(judge.node(i));
    if (!value.empty() && (usual.empty() || by_value[value].size() > by_value[usual].size())) usual = value;
  }
  Findings findings;
  for (const auto& [value, nodes] : by_value)
    if (value != usual)
      findings.push_back({.check = what.check,
                          .grade = what.grade,
                          .text = value + ", the others have " + usual,
                          .remedy = what.remedy,
                          .nodes = nodes});
  return or_passed(std::move(findings), what.check, usual);
}

std::string mtu_of(const NodeFacts& node) {
  return node.route.interface.empty() || node.route.mtu < 0 ? "" : "MTU " + std::to_string(node.route.mtu);
}

std::string link_of(const NodeFacts& node) { return node.route.speed > 0 ? rate_text(node.route.speed) : ""; }

Findings check_sameness(const Judge& judge) {
  const Sameness all[] = {
      {"dtrun", Grade::kFailed,
       [](const NodeFacts& n) { return n.program.version + " build " + shortened(n.program.build, 12); },
       "the same dtrun on all nodes"},
      {"config", Grade::kFailed, [](const NodeFacts& n) { return n.program.config; },
       "the same config file and overrides on all nodes"},
      {"processors", Grade::kFailed, [](const NodeFacts& n) { return n.cpu.fingerprint; },
       "nodes of one kind: these would give other bits (train.allow_mixed_devices gives the promise up)"},
      {"MTU", Grade::kWarning, mtu_of, "ip link set dev DEVICE mtu N"},
      {"link", Grade::kWarning, link_of, "cable, transceiver or switch port"},
      {"kernel", Grade::kWarning, [](const NodeFacts& n) { return n.program.kernel; },
       "nothing depends on it but speed"},
      {"GPU driver", Grade::kWarning, [](const NodeFacts& n) { return n.devices.driver; },
       "the same driver on all nodes"},
      {"CUDA", Grade::kWarning, [](const NodeFacts& n) { return n.devices.cuda; },
       "the same driver on all nodes"},
      {"NCCL version", Grade::kFailed, [](const NodeFacts& n) { return n.devices.nccl; },
       "the same NCCL on all nodes"}};
  Findings findings;
  for (const Sameness& one : all) std::ranges::move(check_same(judge, one), std::back_inserter(findings));
  return findings;
}

// Findings that several nodes share are told once.
Section nodes_section(const ClusterFacts& cluster, const Judge& judge) {
  Section section{.title = "on each of " + counted(judge.size(), "node"), .note = {}, .findings = {}};
  std::map<std::string, int> passed;
  std::vector<std::string> order;
  for (int i = 0; i < judge.size(); ++i) {
    for (Finding& finding : check_node(cluster.nodes[static_cast<std::size_t>(i)])) {
      if (std::ranges::count(order, finding.check) == 0) order.push_back(finding.check);
      if (finding.grade == Grade::kPassed && ++passed[finding.check] > 0) continue;
      const auto alike = std::ranges::find_if(section.findings, [&](const Finding& one) {
        return one.check == finding.check && one.grade == finding.grade && one.text == finding.text;
      });
      if (alike == section.findings.end()) {
        finding.nodes = {judge.name(i)};
        section.findings.push_back(std::move(finding));
      } else {
        alike->nodes.push_back(judge.name(i));
      }
    }
  }
  int count = 0;
  for (const std::string& check : order) {
    count += passed[check];
    if (passed[check] > 0 &&
        std::ranges::none_of(section.findings, [&](const Finding& f) { return f.check == check; }))
      section.findings.push_back(passed_check(check.c_str(), "on all nodes"));
  }
  section.note = std::to_string(count) + " passed";
  return section;
}

Section between_section(const ClusterFacts& cluster, const Judge& judge) {
  Section section{.title = "between nodes",
                  .note = std::to_string(judge.size()) + " of " + std::to_string(cluster.wanted) +
                          " came after " + decimals(cluster.waited, 1) + " s",
                  .findings = {}};
  const auto add = [&](Findings findings) {
    std::ranges::move(findings, std::back_inserter(section.findings));
  };
  if (judge.size() > 1) {
    for (const auto check :
         {check_names, check_connections, check_large, check_round_trips, check_bandwidth, check_clocks})
      add(check(judge));
    add(check_sameness(judge));
  }
  return section;
}

}  // namespace

std::vector<std::string> names_of(const ClusterFacts& cluster) {
  std::map<std::string, int> count;
  for (const NodeFacts& node : cluster.nodes) ++count[node.name.host];
  std::vector<std::string> names;
  for (const NodeFacts& node : cluster.nodes)
    names.push_back(node.name.host +
                    (count[node.name.host] > 1 ? " (rank " + std::to_string(names.size()) + ")" : ""));
  return names;
}

Report cluster_report(const ClusterFacts& cluster) {
  Judge judge(cluster);
  judge.measure();
  return {.sections = {nodes_section(cluster, judge), between_section(cluster, judge)},
          .missing = std::max(0, cluster.wanted - judge.size())};
}

std::vector<Pair> doubtful_pairs(const ClusterFacts& cluster, std::size_t most) {
  Judge judge(cluster);
  judge.measure();
  std::vector<std::pair<double, Pair>> doubtful;
  for (int low = 0; low < judge.size(); ++low)
    for (int high = low + 1; high < judge.size(); ++high) {
      const bool late = judge.is_late(low, high) || judge.is_late(high, low);
      const bool slow = judge.is_slow(low, high).value_or(false) || judge.is_slow(high, low).value_or(false);
      const double rate = std::min(judge.path(low, high).rate, judge.path(high, low).rate);
      if (late || slow) doubtful.push_back({slow ? rate : 0, {low, high}});
    }
  std::ranges::sort(doubtful);
  std::vector<Pair> pairs;
  for (const auto& [rate, pair] : doubtful)
    if (pairs.size() < most) pairs.push_back(pair);
  return pairs;
}

void take_better(PathFacts& path, const PathFacts& again) {
  if (again.rate >= path.rate || again.rate_of_cpu) {
    path.rate = std::max(path.rate, again.rate);
    path.rate_of_cpu = again.rate_of_cpu;
  }
  if (again.round_trip_least >= 0 && again.round_trip_least < path.round_trip_least) {
    path.round_trip_least = again.round_trip_least;
    path.round_trip = std::min(path.round_trip, again.round_trip);
  }
}

}  // namespace dtrun::doctor
