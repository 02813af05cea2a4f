// metrics.jsonl of a run, read as far as it can be: its numbers as curves over steps. Pure.
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::cmd {

struct CurvePoint {
  std::int64_t step = 0;
  double value = 0;  // finite
  bool operator==(const CurvePoint&) const = default;
};
using Curve = std::vector<CurvePoint>;  // steps ascend

// A line "start".
struct MetricsStart {
  std::int64_t step = 0, generation = 0;
  int world_size = 0;
  std::string from, device;
  double parameters = 0;
  double time = 0;  // seconds since 1970
};

struct MetricsLog {
  // By the name in the file: all numbers of the lines "train" and "eval".
  std::map<std::string, Curve> train, eval;
  Curve stalls;  // "save": milliseconds
  std::vector<MetricsStart> starts;
  std::int64_t last_step = 0;
  double last_time = 0;  // seconds since 1970; 0: there is no line
  std::string params_sha256;
  std::int64_t best_step = -1;
  int unreadable = 0;  // lines that are no JSON object with an event and a step
};

// A line of a step that the file has already takes back that step and all behind it, as the run did that
// wrote it. A number that is not finite is no point.
MetricsLog read_metrics(std::istream& text);

}  // namespace dtrun::cmd
