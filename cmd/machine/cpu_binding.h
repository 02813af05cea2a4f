// --numa_binding: which CPUs each worker may use, from the machine's topology. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proto/core/status.h"

namespace dtrun::cmd {

// A CPU (hardware thread) that this process may use.
struct Cpu {
  int id = 0;
  int node = 0;     // NUMA node
  int package = 0;  // socket
  int core = 0;     // the lowest CPU of its physical core
  int cache = 0;    // the lowest CPU that shares its last-level cache
};

enum class CpuBinding { kNode, kSocket, kExclusive, kCoreComplex };

// "node", "socket", "exclusive", "core-complex"
std::optional<CpuBinding> cpu_binding_of(const std::string& name);

// CPUs by local rank, ascending. A worker lives on the NUMA node of the GPU with its local rank; if there are
// not enough GPUs (`gpu_nodes` by device, -1 unknown), neighbouring workers share a node and every node has
// about as many. kNode: all CPUs of that node. kSocket: all of its socket. kExclusive: an own share of its
// physical cores; fails if there are fewer cores than workers. kCoreComplex: a group of CPUs that share a
// last-level cache, another group for each worker of the node as long as there are any.
Result<std::vector<std::vector<int>>> bind_cpus(const std::vector<Cpu>& cpus,
                                                const std::vector<int>& gpu_nodes, CpuBinding binding,
                                                int workers);

}  // namespace dtrun::cmd
