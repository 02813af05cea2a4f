// The device of a built-in trainer's worker that dtrun starts outside of a job, as for a profile.
#pragma once

#include <span>
#include <string>

#include "cmd/machine/device_choice.h"
#include "cmd/machine/machine.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

// The device that a run of this config with one worker would have here, and its errors.
Result<DeviceChoice> device_of_one_worker(const std::string& path, std::span<const std::string> overrides,
                                          const Machine& machine);

}  // namespace dtrun::cmd
