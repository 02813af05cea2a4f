#include "cmd/history/metrics_log.h"

#include <algorithm>
#include <cmath>

#include "cmd/history/lines.h"
#include "proto/json/json.h"

namespace dtrun::cmd {
namespace {

// What tells where a point is, not how high.
bool is_place(const std::string& name) { return name == "step" || name == "time" || name == "generation"; }

void take_back(Curve& curve, std::int64_t step) {
  while (!curve.empty() && curve.back().step >= step) curve.pop_back();
}

void add_numbers(const Json& line, std::int64_t step, std::map<std::string, Curve>* curves) {
  for (auto& [name, curve] : *curves) take_back(curve, step);
  for (const auto& [name, value] : line.items()) {
    if (!value.is_number() || is_place(name)) continue;
    const double number = value.get<double>();
    if (std::isfinite(number)) (*curves)[name].push_back({step, number});
  }
}

void add_start(const Json& line, std::int64_t step, MetricsLog* log) {
  log->starts.push_back({.step = step,
                         .generation = number_at<std::int64_t>(line, "generation", 0),
                         .world_size = number_at(line, "world_size", 0),
                         .from = text_at(line, "from"),
                         .device = text_at(line, "device"),
                         .parameters = number_at(line, "parameters", 0.0),
                         .time = number_at(line, "time", 0.0)});
}

bool add(const Json& line, MetricsLog* log) {
  if (!line.is_object()) return false;
  const std::string event = text_at(line, "event");
  const std::int64_t step = number_at<std::int64_t>(line, "step", -1);
  if (event.empty() || step < 0) return false;
  log->last_step = step;
  log->last_time = std::max(log->last_time, number_at(line, "time", 0.0));
  if (event == "train") add_numbers(line, step, &log->train);
  if (event == "eval") add_numbers(line, step, &log->eval);
  if (event == "start") add_start(line, step, log);
  if (event == "save") {
    take_back(log->stalls, step);
    log->stalls.push_back({step, number_at(line, "stall_milliseconds", 0.0)});
  }
  if (event == "end") {
    log->params_sha256 = text_at(line, "params_sha256");
    log->best_step = number_at<std::int64_t>(line, "best_step", -1);
  }
  return true;
}

}  // namespace

MetricsLog read_metrics(std::istream& text) {
  MetricsLog log;
  for (std::string line; next_line(text, &line);)
    if (!line.empty() && !add(parse_json(line), &log)) ++log.unreadable;
  return log;
}

}  // namespace dtrun::cmd
