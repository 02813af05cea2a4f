#include "worker/profile/report.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "proto/core/text.h"
#include "worker/profile/table_text.h"

namespace dtrun::worker {
namespace {

using Json = nlohmann::ordered_json;

double seconds(NodeTime::Clock::duration time) { return std::chrono::duration<double>(time).count(); }

// The linear layer before the loss, whose time some lanes record as the loss'.
int classifier_of(const Program& program) {
  const Value logits = program.nodes.back().in[0];
  const auto made = std::ranges::find_if(program.nodes, [&](const Node& node) { return node.out == logits; });
  return static_cast<int>(made - program.nodes.begin());
}

constexpr Column kColumns[] = {{"nodes", 6},   {"forward", 10}, {"backward", 10},  {"of step", 9},
                               {"GFLOP/s", 9}, {"GB/s", 8},     {"of ceiling", 12}};

}  // namespace

std::vector<ProfileRow> rows_of(const Program& program, std::span<const std::vector<NodeTime>> lanes,
                                double samples, int steps) {
  std::vector<ProfileRow> nodes(program.nodes.size());
  const double share = 1.0 / (static_cast<double>(lanes.size()) * steps);
  for (const std::vector<NodeTime>& lane : lanes) {
    for (const NodeTime& time : lane) {
      ProfileRow& row = nodes[static_cast<std::size_t>(time.node)];
      (time.backward ? row.backward : row.forward) += seconds(time.end - time.begin) * share;
    }
  }
  const double samples_of_lane = samples / static_cast<double>(lanes.size());
  const auto add_cost = [&](int node, ProfileRow& to) {
    const NodeCost cost = cost_of(program, node, samples_of_lane);
    to.cost += cost.forward;
    to.cost += cost.backward;
  };
  std::map<std::string, ProfileRow> kinds;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].seconds() == 0) continue;
    const int node = static_cast<int>(i), classifier = classifier_of(program);
    std::string what = describe(program, node);
    add_cost(node, nodes[i]);
    if (i + 1 == nodes.size() && nodes[static_cast<std::size_t>(classifier)].seconds() == 0) {
      what = describe(program, classifier) + ", and the loss";
      add_cost(classifier, nodes[i]);
    }
    ProfileRow& kind = kinds[what];
    kind.what = what;
    ++kind.nodes;
    kind.forward += nodes[i].forward, kind.backward += nodes[i].backward;
    kind.cost += nodes[i].cost;
  }
  std::vector<ProfileRow> rows;
  for (const auto& [what, kind] : kinds) rows.push_back(kind);
  std::ranges::stable_sort(rows, std::ranges::greater(), &ProfileRow::seconds);
  return rows;
}

double Profile::other() const {
  double rest = seconds - data - update;
  for (const ProfileRow& row : rows) rest -= row.seconds();
  return rest;
}

double share_of_ceiling(const ProfileRow& row, const Ceilings& ceilings) {
  if (row.seconds() <= 0) return 0;
  return std::max(row.cost.flops / ceilings.flops, row.cost.bytes / ceilings.bytes) / row.seconds();
}

std::string table(const Profile& p) {
  std::size_t first = 38;
  for (const ProfileRow& row : p.rows) first = std::max(first, row.what.size() + 2);
  std::string text = p.job + "\n" + p.machine + "\nceiling of a lane: matmuls " +
                     decimals(p.ceilings.flops / 1e9, 1) + " GFLOP/s, memory " +
                     decimals(p.ceilings.bytes / 1e9, 1) + " GB/s\n\n";
  text += title_line("of one lane, in a step", first, kColumns);
  for (const ProfileRow& row : p.rows) {
    text +=
        line(row.what, first, kColumns,
             {std::to_string(row.nodes), milliseconds(row.forward), milliseconds(row.backward),
              percent(row.seconds() / p.seconds),
              row.cost.flops > 0 ? decimals(row.cost.flops / row.seconds() / 1e9, 1) : "",
              decimals(row.cost.bytes / row.seconds() / 1e9, 1), percent(share_of_ceiling(row, p.ceilings))});
  }
  const auto part = [&](const char* what, double time) {
    text += line(what, first, kColumns, {"", milliseconds(time), "", percent(time / p.seconds)});
  };
  part("reading samples", p.data);
  part("mean, norm and optimizer", p.update);
  part(p.lanes == 1 ? "adding up, other" : "adding up, waiting for lanes, other", p.other());
  text += line("a step", first, kColumns, {"", milliseconds(p.seconds), "", "100 %"});
  return text + "\n" + decimals(p.samples / p.seconds, 0) + " samples/s, over " + std::to_string(p.steps) +
         " steps\n";
}

std::string json(const Profile& p) {
  Json rows = Json::array();
  for (const ProfileRow& row : p.rows)
    rows.push_back({{"what", row.what},
                    {"nodes", row.nodes},
                    {"forward_seconds", row.forward},
                    {"backward_seconds", row.backward},
                    {"flops", row.cost.flops},
                    {"bytes", row.cost.bytes},
                    {"of_ceiling", share_of_ceiling(row, p.ceilings)}});
  const Json all{
      {"version", 1},
      {"device", "cpu"},
      {"job", p.job},
      {"machine", p.machine},
      {"lanes", p.lanes},
      {"steps", p.steps},
      {"samples_per_step", p.samples},
      {"step_seconds", p.seconds},
      {"ceiling", {{"flops_per_second", p.ceilings.flops}, {"bytes_per_second", p.ceilings.bytes}}},
      {"rows", rows},
      {"data_seconds", p.data},
      {"update_seconds", p.update},
      {"other_seconds", p.other()}};
  return all.dump(2) + "\n";
}

}  // namespace dtrun::worker
