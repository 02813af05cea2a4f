// What a pod is given, in the words of Kubernetes, as options of `dtrun kubernetes`: found wrong here, not by
// a pod that never starts. Pure; failures have EX_USAGE.
#pragma once

#include "cmd/options/given.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

// An image of which a pod that is replaced gets the same as the others have: with a tag other than "latest",
// or a digest. Kubernetes also asks the registry for "latest" each time, though the node may have the image.
Status check_image(const Given& given);

// Limits: "8", "0.5" or "500m", and "16Gi", "16G", "16e9" or bytes, of which 1Mi is the least here.
Status check_cpus(const Given& given);
Status check_memory(const Given& given);

}  // namespace dtrun::cmd
