#include "cmd/history/run_history.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "cmd/history/curves.h"
#include "proto/core/text.h"
#include "proto/json/fields.h"

namespace dtrun::cmd {

DTRUN_JSON(LifeMark, time, host, kind, text)
DTRUN_JSON(Difference, name, a, b, change)

namespace {

std::string number_text(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) {
    const std::string whole = with_thousands(static_cast<std::uint64_t>(std::abs(value)));
    return value < 0 ? "-" + whole : whole;
  }
  const double size = std::abs(value);
  if (size >= 1000 && size < 1e15) return number_text(std::round(value));
  return decimals(value, size >= 100 ? 1 : size >= 1 ? 3 : 5);
}

Json at_path(const Json& json, std::initializer_list<const char*> path) {
  const Json* at = &json;
  for (const char* name : path) {
    if (!at->is_object() || !at->contains(name)) return nullptr;
    at = &(*at)[name];
  }
  return *at;
}

std::string text_at(const Json& json, std::initializer_list<const char*> path) {
  const Json found = at_path(json, path);
  return found.is_string() ? found.get<std::string>() : "";
}

std::optional<double> number_at(const Json& json, std::initializer_list<const char*> path) {
  const Json found = at_path(json, path);
  return found.is_number() ? std::optional(found.get<double>()) : std::nullopt;
}

class FactList {
 public:
  void word(const char* name, const std::string& text) {
    if (!text.empty()) facts_.push_back({name, text, std::nullopt});
  }
  void number(const char* name, std::optional<double> value) {
    if (value) facts_.push_back({name, number_text(*value), value});
  }
  void percent(const char* name, std::optional<double> share) {
    if (share) facts_.push_back({name, decimals(100 * *share, 2) + " %", share});
  }
  void seconds(const std::string& name, std::optional<double> value) {
    if (value) facts_.push_back({name, time_text(*value), value});
  }
  std::vector<RunFact> take() { return std::move(facts_); }

 private:
  std::vector<RunFact> facts_;
};

const Curve* find(const std::map<std::string, Curve>& curves, const char* name) {
  const auto found = curves.find(name);
  return found == curves.end() || found->second.empty() ? nullptr : &found->second;
}

std::optional<double> last_of(const std::map<std::string, Curve>& curves, const char* name) {
  const Curve* curve = find(curves, name);
  return curve == nullptr ? std::nullopt : std::optional(curve->back().value);
}

std::optional<double> median_in(const std::map<std::string, Curve>& curves, const char* name) {
  const Curve* curve = find(curves, name);
  return curve == nullptr ? std::nullopt : std::optional(median_of(*curve));
}

void add_goodput(const Json& report, RunHistory* run) {
  const Json goodput = at_path(report, {"goodput"});
  if (!goodput.is_object()) return;
  run->goodput_ratio = number_at(goodput, {"ratio"}).value_or(0);
  for (const auto& [name, value] : goodput.items())
    if (value.is_number() && name != "ratio" && name != "steps_redone")
      run->goodput.push_back({name, value.get<double>()});
}

std::vector<RunFact> facts_of(const RunRecord& record, const RunHistory& run) {
  const MetricsLog& metrics = record.metrics;
  FactList facts;
  facts.word("run id", !record.life.run_id.empty() ? record.life.run_id : text_at(record.report, {"run_id"}));
  facts.number("exit code", number_at(record.report, {"exit_code"}));
  if (record.life.begin > 0) {
    facts.word("began", utc_text(static_cast<std::int64_t>(record.life.begin), "%Y-%m-%d %H:%M:%S UTC"));
    facts.word("last event", utc_text(static_cast<std::int64_t>(record.life.end), "%Y-%m-%d %H:%M:%S UTC"));
  }
  double wall = 0;
  for (const TimeKind& kind : run.goodput) wall += kind.seconds;
  if (!run.goodput.empty()) {
    facts.seconds("time in all", wall);
    facts.percent("goodput", run.goodput_ratio);
    for (const TimeKind& kind : run.goodput) facts.seconds(kTimeOfKind + kind.name, kind.seconds);
    facts.number("steps redone", number_at(record.report, {"goodput", "steps_redone"}));
  }
  facts.number("restarts", number_at(record.report, {"restarts", "used"}));
  facts.number("restarts allowed", number_at(record.report, {"restarts", "allowed"}));
  facts.number("membership changes", number_at(record.report, {"membership_changes"}));
  if (!metrics.starts.empty()) {
    const MetricsStart& newest = metrics.starts.back();
    facts.number("world size", newest.world_size);
    facts.word("device", newest.device);
    facts.number("parameters", newest.parameters);
  }
  if (metrics.last_time > 0) facts.number("steps", static_cast<double>(metrics.last_step));
  facts.number("loss", last_of(metrics.train, "loss"));
  facts.number("evaluation: loss", last_of(metrics.eval, "loss"));
  facts.percent("evaluation: accuracy", last_of(metrics.eval, "accuracy"));
  facts.number("evaluation: perplexity", last_of(metrics.eval, "perplexity"));
  if (metrics.best_step >= 0) facts.number("best step", static_cast<double>(metrics.best_step));
  facts.number("samples per second, median", median_in(metrics.train, "samples_per_second"));
  facts.number("tokens per second, median", median_in(metrics.train, "tokens_per_second"));
  facts.percent("waiting for gradients, median", median_in(metrics.train, "wait_gradients"));
  facts.percent("waiting for data, median", median_in(metrics.train, "wait_data"));
  facts.word("sha256 of the parameters", metrics.params_sha256);
  return facts.take();
}

// Numbers of metrics.jsonl by the chart that shows them; in the order of the page.
struct ChartPlan {
  const char* title;
  std::vector<std::pair<const char*, const char*>> train, eval;  // name in the file, and on the page
  bool log_scale = false;
};
const std::vector<ChartPlan>& chart_plans() {
  static const std::vector<ChartPlan> plans{
      {"loss", {{"loss", "training"}}, {{"loss", "evaluation"}}, true},
      {"accuracy of evaluations", {}, {{"accuracy", "accuracy"}}},
      {"perplexity of evaluations", {}, {{"perplexity", "perplexity"}}, true},
      {"samples per second", {{"samples_per_second", "samples/s"}}, {}},
      {"tokens per second", {{"tokens_per_second", "tokens/s"}}, {}},
      {"gradient norm", {{"grad_norm", "gradient norm"}}, {}, true},
      {"learning rate", {{"learning_rate", "learning rate"}}, {}, true},
      {"GPU memory of rank 0, bytes",
       {{"gpu_memory_used", "in use"}, {"gpu_memory_peak", "peak"}, {"gpu_memory_total", "there"}},
       {}},
      {"workers", {{"world_size", "workers"}}, {}}};
  return plans;
}

constexpr const char* kShares[] = {"wait_gradients", "wait_data", "other"};

// What is left of a step beside its waits is math.
std::optional<Chart> shares_of(const MetricsLog& metrics) {
  const Curve* waits = find(metrics.train, kShares[0]);
  if (waits == nullptr) return std::nullopt;
  std::map<std::int64_t, double> rest;
  for (const CurvePoint& point : *waits) rest[point.step] = 1;
  Chart chart{.title = "where a step goes, share of its time", .curves = {{"math", {}}}, .stacked = true};
  for (const char* name : kShares) {
    const Curve* curve = find(metrics.train, name);
    if (curve == nullptr || curve->size() != waits->size()) return std::nullopt;
    for (const CurvePoint& point : *curve) rest[point.step] -= point.value;
    chart.curves.push_back({name, *curve});
  }
  for (const auto& [step, share] : rest) chart.curves[0].points.push_back({step, std::max(0.0, share)});
  return chart;
}

void add_curves(const std::map<std::string, Curve>& curves,
                const std::vector<std::pair<const char*, const char*>>& wanted, Chart* chart) {
  for (const auto& [name, shown] : wanted)
    if (const Curve* curve = find(curves, name)) chart->curves.push_back({shown, *curve});
}

bool changes(const Chart& chart) {
  return std::ranges::any_of(chart.curves, [](const ChartCurve& curve) {
    return std::ranges::any_of(curve.points, [&](const auto& p) { return p.value != curve.points[0].value; });
  });
}

// Numbers that no chart above has: those of newer versions.
void add_unknown(const MetricsLog& metrics, std::vector<Chart>* charts) {
  std::set<std::string> known{"epoch", kShares[0], kShares[1], kShares[2]};
  for (const ChartPlan& plan : chart_plans())
    for (const auto& [name, shown] : plan.train) known.insert(name);
  for (const auto& [name, curve] : metrics.train)
    if (!known.contains(name) && !curve.empty())
      charts->push_back({.title = name, .curves = {{name, curve}}});
}

std::vector<Chart> charts_of(const MetricsLog& metrics) {
  std::vector<Chart> charts;
  for (const ChartPlan& plan : chart_plans()) {
    Chart chart{.title = plan.title, .log_scale = plan.log_scale};
    add_curves(metrics.train, plan.train, &chart);
    add_curves(metrics.eval, plan.eval, &chart);
    const bool shown = !chart.curves.empty() && (chart.title != "workers" || changes(chart));
    if (shown) charts.push_back(std::move(chart));
    if (plan.title == std::string("tokens per second"))
      if (auto shares = shares_of(metrics)) charts.push_back(*std::move(shares));
  }
  if (!metrics.stalls.empty())
    charts.push_back({.title = "stall of checkpoints, milliseconds", .curves = {{"stall", metrics.stalls}}});
  add_unknown(metrics, &charts);
  return charts;
}

void flatten(const Json& json, const std::string& name,
             std::vector<std::pair<std::string, std::string>>* entries) {
  if (json.is_object() && !json.empty()) {
    for (const auto& [key, value] : json.items())
      flatten(value, name.empty() ? key : name + "." + key, entries);
  } else if (!name.empty()) {
    entries->emplace_back(name, json.is_string() ? json.get<std::string>() : json_text(json));
  }
}

void add_outcome(const Json& report, const JobLife& life, RunHistory* run) {
  const auto exit_code = number_at(report, {"exit_code"});
  if (exit_code) {
    run->failed = *exit_code != 0;
    run->outcome = "over, exit code " + number_text(*exit_code) + ": " + text_at(report, {"reason"});
    return;
  }
  run->outcome = "no report.json: it goes on (dtrun status), or its agents were killed";
  if (life.end > 0)
    run->outcome +=
        "; last event at " + utc_text(static_cast<std::int64_t>(life.end), "%Y-%m-%d %H:%M:%S UTC");
}

Json json_of(const std::vector<Chart>& charts, std::size_t most_points) {
  Json json = Json::array();
  for (const Chart& chart : charts) {
    Json curves = Json::array();
    for (const ChartCurve& curve : chart.curves) {
      Json points = Json::array();
      for (const CurvePoint& point :
           chart.stacked ? averaged(curve.points, most_points) : thinned(curve.points, most_points))
        points.push_back({point.step, point.value});
      curves.push_back({{"name", curve.name}, {"points", points}});
    }
    json.push_back({{"title", chart.title}, {"curves", curves}});
  }
  return json;
}

Json json_of(const JobLife& life) {
  Json json = {{"begin", life.begin}, {"end", life.end}, {"nodes", Json::array()}, {"events", life.marks}};
  for (const NodeLife& node : life.nodes) {
    Json spans = Json::array();
    for (const WorkSpan& span : node.spans)
      spans.push_back({{"generation", span.generation},
                       {"world_size", span.world_size},
                       {"begin", span.begin},
                       {"ready", span.ready > 0 ? Json(span.ready) : Json(nullptr)},
                       {"end", span.end},
                       {"reason", span.reason},
                       {"cut_short", span.cut_short}});
    json["nodes"].push_back({{"host", node.host}, {"work", spans}});
  }
  return json;
}

}  // namespace

RunHistory history_of(RunRecord record) {
  RunHistory run{.name = record.name};
  add_outcome(record.report, record.life, &run);
  add_goodput(record.report, &run);
  run.verdict = text_at(record.report, {"verdict", "text"});
  run.facts = facts_of(record, run);
  run.charts = charts_of(record.metrics);
  for (const MetricsStart& start : record.metrics.starts)
    if (start.step > 0) run.generation_steps.push_back({start.step, static_cast<double>(start.generation)});
  if (run.failed) run.failure = record.life.report;
  flatten(record.config, "", &run.config);
  run.life = std::move(record.life);
  run.remarks = std::move(record.remarks);
  return run;
}

Json to_json(const RunHistory& run, std::size_t most_points) {
  Json json = {{"version", 1},
               {"name", run.name},
               {"outcome", run.outcome},
               {"verdict", run.verdict},
               {"facts", Json::object()}};
  for (const RunFact& fact : run.facts)
    json["facts"][fact.name] = fact.value ? Json(*fact.value) : Json(fact.text);
  json["charts"] = json_of(run.charts, most_points);
  json["life"] = json_of(run.life);
  json["failure"] = run.failure.empty() ? Json(nullptr) : Json(run.failure);
  json["config"] = Json::object();
  for (const auto& [name, value] : run.config) json["config"][name] = value;
  json["remarks"] = run.remarks;
  return json;
}

Json to_json(const Comparison& comparison) {
  return {{"version", 1}, {"facts", comparison.facts}, {"config", comparison.config}};
}

}  // namespace dtrun::cmd
