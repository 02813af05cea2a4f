#include "agent/output/progress_json.h"

#include <nlohmann/json.hpp>

namespace dtrun::agent {
namespace {

using Json = nlohmann::ordered_json;

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

}  // namespace

std::string progress_json(const ProgressPoint& point, const ProgressPlace& place, double time) {
  const Json json = {{"event", "progress"},
                     {"phase", phase_name(point.phase)},
                     {"step", point.step},
                     {"total_steps", point.total_steps},
                     {"epoch", point.epoch},
                     {"loss", or_null(point.loss)},
                     {"learning_rate", point.learning_rate},
                     {"samples_per_second", point.samples_per_second},
                     {"accuracy", point.accuracy >= 0 ? Json(point.accuracy) : Json(nullptr)},
                     {"seconds_left", or_null(point.seconds_left)},
                     {"world_size", place.world_size},
                     {"generation", place.generation},
                     {"time", time}};
  return json.dump();
}

}  // namespace dtrun::agent
