// Progress of the built-in trainer for programs: one JSON object, in the names of metrics.jsonl. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "agent/text/progress_text.h"

namespace dtrun::agent {

// Where the training runs.
struct ProgressPlace {
  std::int64_t generation = 0;
  int world_size = 1;
};

// One line without its newline. What is not known, or not finite, is null. `time`: seconds since 1970.
std::string progress_json(const ProgressPoint& point, const ProgressPlace& place, double time);

}  // namespace dtrun::agent
