// What is known of a run from the files that it left: the document that `dtrun report` shows. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cmd/history/job_life.h"
#include "cmd/history/metrics_log.h"

namespace dtrun::cmd {

// The files as read.
struct RunRecord {
  std::string name;  // for people: the directory as given
  MetricsLog metrics;
  JobLife life;
  nlohmann::ordered_json report;     // report.json; null: there is none
  nlohmann::ordered_json config;     // config.json; null: there is none
  std::vector<std::string> remarks;  // on files that are missing, or that are read in part; sentences
};

// The names of facts on the kinds of goodput begin so.
inline constexpr char kTimeOfKind[] = "time: ";

// A number or word on the run: final loss, restarts, ….
struct RunFact {
  std::string name;
  std::string text;             // with its unit
  std::optional<double> value;  // if it is a number
};

struct TimeKind {
  std::string name;  // as in report.json
  double seconds = 0;
};

struct ChartCurve {
  std::string name;
  Curve points;
};
struct Chart {
  std::string title;  // with the unit
  std::vector<ChartCurve> curves = {};
  bool stacked = false;    // shares of a whole
  bool log_scale = false;  // offered
};

struct RunHistory {
  std::string name = {};
  std::string outcome = {};  // "over, exit code 0: …", a sentence; never empty
  std::string verdict = {};  // the slow worker, or network, that lasted; may be empty
  bool failed = false;
  std::vector<RunFact> facts = {};
  std::vector<TimeKind> goodput = {};  // empty: not known
  double goodput_ratio = 0;
  std::vector<Chart> charts = {};                 // with all points
  std::vector<CurvePoint> generation_steps = {};  // from which generations went on: value is the generation
  JobLife life = {};
  std::string failure = {};  // the failure's report as people saw it; may be empty
  std::vector<std::pair<std::string, std::string>> config =
      {};  // "train.learning_rate", "0.05", in the file's order
  std::vector<std::string> remarks = {};
};

RunHistory history_of(RunRecord record);

// Something in which two runs differ.
struct Difference {
  std::string name;
  std::string a, b;    // "–": that run has none
  std::string change;  // of numbers: "-3.2 %"; else empty
};

// `facts`: those of either run, equal ones too; `config`: entries that differ.
struct Comparison {
  std::vector<Difference> facts, config;
  std::vector<Chart> charts;  // the curves of both, named "A loss", "B loss"
};
Comparison comparison_of(const RunHistory& a, const RunHistory& b);

// For programs: all of a history, curves thinned out to `most_points` each.
nlohmann::ordered_json to_json(const RunHistory& run, std::size_t most_points);
nlohmann::ordered_json to_json(const Comparison& comparison);

}  // namespace dtrun::cmd
