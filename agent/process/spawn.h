// Starts one process the way a worker needs it: own session and process group, death signal, clean signal
// mask and dispositions, and no descriptor but the seven that it may be given.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "agent/core/limit_tag.h"
#include "proto/core/status.h"

namespace dtrun::agent {

// The control socket's number in a worker.
inline constexpr int kControlFd = 3;
// The number in a worker of its file in the host's memory (agent/process/host_memory.h).
inline constexpr int kInMemoryCheckpointFd = 4;
// The same of the memory for its last operations (proto/base/operation_ring.h).
inline constexpr int kOperationsFd = 5;
// The same of the memory for the data of all workers of the node (worker/data/node_memory.h).
inline constexpr int kDataFd = 6;
// The memory that a worker of the built-in trainer is given.
struct WorkerMemory {
  bool in_memory_checkpoint = false;
  bool operations = false;
  bool data = false;
};
// Above every number that the child's own descriptors take.
inline constexpr int kFirstSpareFd = 16;

struct SpawnPlan {
  std::vector<std::string> argv;         // argv[0] is looked up in PATH
  std::vector<std::string> environment;  // "NAME=value"
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
  int control_fd = -1;  // becomes kControlFd; -1: none
  // These become kInMemoryCheckpointFd, kOperationsFd and kDataFd, and are at least kFirstSpareFd here; -1:
  // none.
  int in_memory_checkpoint_fd = -1;
  int operations_fd = -1;
  int data_fd = -1;
  std::vector<int> cpus;  // that it may use; empty: those of this process
  LimitTag limit_tag;     // that it and all it starts will carry
};

// The new process's id, which is its group's too. A program that cannot be executed fails with a shell's exit
// codes: 127 if there is no such program, else 126. The process gets SIGKILL when the calling thread ends.
Result<pid_t> spawn(const SpawnPlan& plan);

}  // namespace dtrun::agent
