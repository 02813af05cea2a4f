#include "agent/health/last_operations.h"

#include <cmath>
#include <fstream>

#include "proto/base/clock.h"
#include "proto/json/json.h"

namespace dtrun::agent {
namespace {

double rounded(double seconds) { return std::round(seconds * 1e6) / 1e6; }

}  // namespace

std::string operations_text(const std::vector<Operation>& operations, std::int64_t now, double wall) {
  std::string text;
  for (const Operation& each : operations) {
    const auto seconds_since = [](std::int64_t from, std::int64_t to) {
      return static_cast<double>(to - from) / 1e9;
    };
    const std::int64_t end = each.state == Operation::State::kWaits ? now : each.ended;
    Json line{{"time", rounded(wall - seconds_since(each.began, now))},
              {"generation", each.generation},
              {"step", each.step},
              {"operation", name_of(each.kind)}};
    if (each.bucket >= 0) line["bucket"] = each.bucket;
    if (each.round >= 0) line["round"] = each.round;
    if (each.peer >= 0) line["peer"] = each.peer;
    line["state"] = name_of(each.state);
    line["seconds"] = rounded(seconds_since(each.began, end));
    text += json_text(line) + "\n";
  }
  return text;
}

void write_last_operations(const std::filesystem::path& folder, const std::vector<Operation>& operations) {
  if (folder.empty() || operations.empty()) return;
  std::ofstream(folder / "last_operations.jsonl", std::ios::binary)
      << operations_text(operations, steady_nanoseconds(), wall_seconds());
}

}  // namespace dtrun::agent
