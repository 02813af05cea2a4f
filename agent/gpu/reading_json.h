// A reading of the GPUs as a line of JSON: between the process that asks the driver and the one that wants to
// know.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "agent/core/gpu.h"

namespace dtrun::agent {

// Without a newline.
std::string to_json(const GpuReading& reading);

// Nothing for a text that is not one of to_json().
std::optional<GpuReading> reading_of(std::string_view json);

}  // namespace dtrun::agent
