// `dtrun kubernetes CONFIG.json`: what runs the job on Kubernetes, for kubectl apply.
#pragma once

#include "cmd/options/command.h"

namespace dtrun::cmd {

extern const Command kKubernetesCommand;

}  // namespace dtrun::cmd
