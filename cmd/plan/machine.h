// What this machine has, as /sys, /proc and /dev tell it: CPUs with their topology, GPUs with their NUMA
// nodes, memory. Opens no device.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cmd/plan/cpu_binding.h"
#include "worker/memory/need.h"

namespace dtrun::cmd {

// this_machine() asks the system once; tests make one up.
struct Machine {
  int cpus = 1;  // that this process may use
  int gpus = 0;  // that a program started here can use
  std::string worker_binary = {};
  int trainer_gpus = 0;             // that dtrun-worker can use
  bool bf16 = true;                 // the built-in trainer can multiply bfloat16 here
  std::vector<Cpu> topology = {};   // of those CPUs
  std::vector<int> gpu_nodes = {};  // NUMA node by GPU, -1 unknown
};

Machine this_machine();

// The CPUs in `allowed`, by id. `root` stands for "/".
std::vector<Cpu> read_topology(const std::filesystem::path& root, const std::set<int>& allowed);

// NUMA nodes of the NVIDIA GPUs that CUDA would show, in its order (PCI address); -1: not known.
// `visible` is CUDA_VISIBLE_DEVICES, null if it is not set.
std::vector<int> read_gpu_nodes(const std::filesystem::path& root, const char* visible);

// Memory that can be had without swapping: the kernel's MemAvailable, or less if a control group that this
// process is in allows less. Nothing if neither is known.
std::optional<worker::Available> read_available_memory(const std::filesystem::path& root);

// "0-2,4" as numbers; stops at what it does not understand.
std::set<int> parse_cpu_list(const std::string& text);

}  // namespace dtrun::cmd
