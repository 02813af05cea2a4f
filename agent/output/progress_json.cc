#include "agent/output/progress_json.h"

#include "agent/text/progress_text.h"
#include "proto/json/fields.h"

namespace dtrun::agent {

std::string progress_json(const Progress& progress, std::optional<double> seconds_left,
                          const ProgressPlace& place, double time) {
  const Json json = {{"event", "progress"},
                     {"phase", name_of(progress.phase)},
                     {"step", progress.step},
                     {"total_steps", progress.total_steps},
                     {"epoch", progress.epoch},
                     {"loss", progress.loss},
                     {"learning_rate", progress.learning_rate},
                     {"samples_per_second", progress.samples_per_second},
                     {"accuracy", progress.accuracy},
                     {"seconds_left", seconds_left},
                     {"world_size", place.world_size},
                     {"generation", place.generation},
                     {"time", time}};
  return json_text(json);
}

}  // namespace dtrun::agent
