// Progress of the built-in trainer for programs: one JSON object, in the names of metrics.jsonl. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "proto/core/training.h"

namespace dtrun::agent {

// The place where the training runs.
struct ProgressPlace {
  std::int64_t generation = 0;
  int world_size = 1;
};

// One line without its newline. Values that are unknown, or not finite, are null. `time`: seconds since 1970.
std::string progress_json(const Progress& progress, std::optional<double> seconds_left,
                          const ProgressPlace& place, double time);

}  // namespace dtrun::agent
