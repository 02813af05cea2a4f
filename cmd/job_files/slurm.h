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
  std::vector<std::string> options = {};  // of dtrun there, beside those that follow from the rest
  std::vector<std::string> words =
      {};  // behind them: config and overrides, script or program, as the job finds it
};

// True if it is a word that stands in a line of #SBATCH as it is, such as a list of partitions.
bool is_slurm_word(const std::string& text);

// True if sbatch takes it for a time limit: MINUTES, MINUTES:SECONDS, HOURS:MINUTES:SECONDS, DAYS-HOURS and
// so on, or UNLIMITED.
bool is_slurm_time(const std::string& text);

std::string slurm_script(const SlurmJob& job);

}  // namespace dtrun::cmd
