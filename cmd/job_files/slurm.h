// The script that runs a job under Slurm, for sbatch: configs/cluster/slurm.sbatch.in with its values. Pure.
#pragma once

#include <string>
#include <vector>

#include "agent/core/job_spec.h"

namespace dtrun::cmd {

struct SlurmJob {
  std::string name = {};
  NodeCount nodes = {};
  int gpus = 0;                           // of each node
  std::string time = {}, partition = {};  // as sbatch writes them; empty: the cluster's
  int max_restarts = 0;
  std::string config = {};                  // the file, as the job finds it
  std::vector<std::string> overrides = {};  // KEY=VALUE
};

// True if sbatch takes it for a time limit: MINUTES, MINUTES:SECONDS, HOURS:MINUTES:SECONDS, DAYS-HOURS and
// so on, or UNLIMITED.
bool is_slurm_time(const std::string& text);

std::string slurm_script(const SlurmJob& job);

}  // namespace dtrun::cmd
