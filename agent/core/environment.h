// A worker's environment and command line. Pure: the agent's own environment is an argument.
#pragma once

#include <string>
#include <vector>

#include "agent/core/vocabulary.h"

namespace dtrun::agent {

// The same for all workers of the job on this node.
struct WorkerSetting {
  std::string run_id;
  std::string role;
  int max_restarts = 0;
  int omp_num_threads = 1;          // unless the user's environment sets it
  std::string tag;                  // of this agent (kEnvProcessTag)
  bool virtual_local_rank = false;  // LOCAL_RANK is 0, CUDA_VISIBLE_DEVICES the worker's own GPU
  std::string master_address;       // empty: the assignment's
  bool gpus_by_address = false;     // CUDA counts GPUs as nvidia-smi does
  // If the host has other agents of the job: the local rank of this one's first worker, and the number of
  // workers on the host (0: this agent's).
  int first_local_rank = 0;
  int local_world_size = 0;
};

struct WorkerNumbers {
  int serial = 0;  // of its process among all of this agent's
  int local_rank = 0;
};

// "NAME=value" entries: `inherited`, with all of torchrun's variables and ours set for that worker.
// `control_fd` -1: no control socket. An outer agent's tag is kept before ours: a process that carries both
// belongs to both jobs.
std::vector<std::string> worker_environment(const std::vector<std::string>& inherited,
                                            const WorkerSetting& setting, const Assignment& assignment,
                                            const WorkerNumbers& worker, int control_fd,
                                            const std::string& error_file);

// The value of kEnvProcessTag in one worker and in everything that it starts. A search for `agent_tag`
// finds all of an agent's processes, a search for this value those of one worker.
std::string worker_tag(const std::string& agent_tag, int serial);

// `argv` as torchrun gives it: in all but the program's own name, argv[0], "$local_rank" and "${local_rank}"
// are replaced, and "$$" is a dollar sign.
std::vector<std::string> worker_arguments(std::vector<std::string> argv, int local_rank);

}  // namespace dtrun::agent
