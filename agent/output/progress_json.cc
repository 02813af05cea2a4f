#include "agent/output/progress_json.h"

#include "agent/text/progress_text.h"
#include "proto/json/json.h"

namespace dtrun::agent {
namespace {

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

}  // namespace

std::string progress_json(const Progress& progress, std::optional<double> seconds_left,
                          const ProgressPlace& place, double time) {
  const Json json = {{"event", "progress"},
                     {"phase", name_of(progress.phase)},
                     {"step", progress.step},
                     {"total_steps", progress.total_steps},
                     {"epoch", progress.epoch},
                     {"loss", or_null(progress.loss)},
                     {"learning_rate", progress.learning_rate},
                     {"samples_per_second", progress.samples_per_second},
                     {"accuracy", or_null(progress.accuracy)},
                     {"seconds_left", or_null(seconds_left)},
                     {"world_size", place.world_size},
                     {"generation", place.generation},
                     {"time", time}};
  return json_text(json);
}

}  // namespace dtrun::agent
