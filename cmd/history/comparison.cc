#include <algorithm>
#include <cmath>

#include "cmd/history/run_history.h"
#include "proto/core/text.h"

namespace dtrun::cmd {
namespace {

constexpr const char* kNone = "–";

// Names of either list: those of the first in its order, then what the second has more.
template <typename Entries, typename Name>
std::vector<std::string> names_of(const Entries& a, const Entries& b, const Name& name) {
  std::vector<std::string> names;
  for (const Entries* entries : {&a, &b})
    for (const auto& entry : *entries)
      if (std::ranges::find(names, name(entry)) == names.end()) names.push_back(name(entry));
  return names;
}

std::string change_of(const std::optional<double>& a, const std::optional<double>& b) {
  if (!a || !b || *a == *b || *a == 0) return "";
  const double change = 100 * (*b - *a) / std::abs(*a);
  return (change > 0 ? "+" : "") + decimals(change, 1) + " %";
}

std::vector<Difference> facts_of(const RunHistory& a, const RunHistory& b) {
  const auto find = [](const RunHistory& run, const std::string& name) {
    const auto found = std::ranges::find(run.facts, name, &RunFact::name);
    return found == run.facts.end() ? RunFact{.name = name, .text = kNone, .value = std::nullopt} : *found;
  };
  std::vector<Difference> facts;
  for (const std::string& name : names_of(a.facts, b.facts, [](const RunFact& fact) { return fact.name; })) {
    const RunFact of_a = find(a, name), of_b = find(b, name);
    facts.push_back({name, of_a.text, of_b.text, change_of(of_a.value, of_b.value)});
  }
  return facts;
}

std::vector<Difference> config_of(const RunHistory& a, const RunHistory& b) {
  using Entry = std::pair<std::string, std::string>;
  const auto find = [](const RunHistory& run, const std::string& name) {
    const auto found = std::ranges::find(run.config, name, &Entry::first);
    return found == run.config.end() ? std::string(kNone) : found->second;
  };
  std::vector<Difference> differing;
  for (const std::string& name : names_of(a.config, b.config, [](const Entry& entry) { return entry.first; }))
    if (find(a, name) != find(b, name)) differing.push_back({name, find(a, name), find(b, name), ""});
  return differing;
}

// Shares of two runs cannot be one stack: their curves stand side by side.
void add(const RunHistory& run, const std::string& letter, std::vector<Chart>* charts) {
  for (const Chart& chart : run.charts) {
    auto there = std::ranges::find(*charts, chart.title, &Chart::title);
    if (there == charts->end()) {
      charts->push_back({.title = chart.title, .curves = {}, .log_scale = chart.log_scale});
      there = std::prev(charts->end());
    }
    for (const ChartCurve& curve : chart.curves)
      there->curves.push_back({letter + (" " + curve.name), curve.points});
  }
}

}  // namespace

Comparison comparison_of(const RunHistory& a, const RunHistory& b) {
  Comparison comparison{.facts = facts_of(a, b), .config = config_of(a, b), .charts = {}};
  add(a, "A", &comparison.charts);
  add(b, "B", &comparison.charts);
  return comparison;
}

}  // namespace dtrun::cmd
