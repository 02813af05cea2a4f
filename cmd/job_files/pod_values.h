// Checks the options of `dtrun kubernetes` that are in the words of Kubernetes: mistakes are found here, not
// by a pod that never starts. Pure; failures have EX_USAGE.
#pragma once

#include "cmd/options/given.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

// An image that a replaced pod gets the same as the others have: with a tag other than "latest", or a digest.
// Kubernetes also asks the registry for "latest" each time, though the node may have the image.
Status check_image(const Given& given);

// Limits: "8", "0.5" or "500m", and "16Gi", "16G", "16e9" or bytes, at least 1Mi.
Status check_cpus(const Given& given);
Status check_memory(const Given& given);

}  // namespace dtrun::cmd
