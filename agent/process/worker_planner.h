// Plans how each worker of a generation is started: command line, environment, CPUs, and the files and
// folders that it and the agent leave for each other. Makes the folders; starts nothing.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "agent/core/environment.h"
#include "agent/core/job_spec.h"
#include "agent/core/vocabulary.h"
#include "agent/output/console.h"
#include "agent/output/output_plan.h"
#include "agent/process/host_memory.h"
#include "agent/process/scratch.h"
#include "agent/process/worker_process.h"

namespace dtrun::agent {

class WorkerPlanner {
 public:
  // `inherited`: this process's environment. `tag`: the watchdog's. `logs` writes log files; it and `scratch`
  // must outlive the planner.
  WorkerPlanner(const JobSpec& spec, std::vector<std::string> inherited, const std::string& tag, Disk& logs,
                Scratch& scratch);
  WorkerPlanner(const WorkerPlanner&) = delete;

  // `serial`: of its process. `rank`: the worker's, or the one that it is likely to get.
  WorkerPlan plan(Console& console, const Assignment& assignment, int serial, int local_rank, int rank);
  LinePrefix prefix(int rank, int local_rank) const { return outputs_.prefix(rank, local_rank); }

 private:
  void plan_output(Console& console, WorkerPlan* plan);
  void plan_error_file(WorkerPlan* plan);
  void plan_hang_files(WorkerPlan* plan);
  void plan_in_memory_checkpoint(Console& console, WorkerPlan* plan);
  void plan_operations(WorkerPlan* plan);
  std::filesystem::path scratch_dir(int rank);

  const JobSpec& spec_;
  const BuiltinTrainer* const trainer_;  // null for another program
  const std::vector<std::string> inherited_;
  const WorkerSetting setting_;
  OutputPlanner outputs_;
  Disk& logs_;
  Scratch& scratch_;
  std::string scratch_error_;  // why there is no scratch folder
  bool scratch_told_ = false;
  HostMemory in_memory_checkpoints_{"dtrun-in-memory-checkpoint"};
  bool host_memory_told_ = false;  // the same for host memory
  HostMemory operations_{"dtrun-operations"};
  HostMemory data_{"dtrun-data"};
};

}  // namespace dtrun::agent
