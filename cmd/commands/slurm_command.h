// `dtrun slurm CONFIG.json`: a script that runs the job under Slurm, for sbatch.
#pragma once

#include "cmd/options/command.h"

namespace dtrun::cmd {

extern const Command kSlurmCommand;

}  // namespace dtrun::cmd
