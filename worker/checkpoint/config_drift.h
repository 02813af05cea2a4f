// Whether a run may go on from the checkpoints in its output directory, or may begin there.
#pragma once

#include <cstdint>
#include <string>

#include "proto/core/status.h"
#include "worker/config/config.h"

namespace dtrun::worker {

// The differences between the config that wrote a checkpoint and this one. `fatal` differences make its
// parameters or samples meaningless here. Empty texts: no difference.
struct ConfigDrift {
  std::string fatal, harmless;
  // The samples left in the current epoch would not be exactly the unused ones.
  bool reorders_samples = false;
  // The best model so far was chosen by another metric.
  bool other_best = false;
};
ConfigDrift config_drift(const JobConfig& now, const std::string& checkpoint_config);

// EX_CONFIG where the drift from the checkpoint of `step` is fatal.
Status refuse_drift(const JobConfig& now, const ConfigDrift& drift, std::int64_t step);

// EX_CONFIG where the config asks for a run that resumes from nothing, but the directory has a model or
// checkpoints.
Status refuse_used_directory(const JobConfig& config);

// Both checks, as far as they are possible before workers start: by the newest checkpoint whose
// trainer_state.json can be read, or by the one that the config names. The checkpoint's other files are not
// looked at. Reads this machine's disk.
Status check_goes_on(const JobConfig& config);

}  // namespace dtrun::worker
