#include "cmd/machine/cpu_binding.h"

#include <algorithm>
#include <map>
#include <set>

namespace dtrun::cmd {
namespace {

using CpuIds = std::vector<int>;

// The ids of the CPUs that satisfy `wanted`.
template <typename Wanted>
CpuIds ids_where(const std::vector<Cpu>& cpus, Wanted wanted) {
  CpuIds ids;
  for (const Cpu& cpu : cpus) {
    if (wanted(cpu)) ids.push_back(cpu.id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

// The NUMA node of each worker.
std::vector<int> homes(const std::vector<Cpu>& cpus, const std::vector<int>& gpu_nodes, std::size_t workers) {
  std::set<int> distinct;
  for (const Cpu& cpu : cpus) distinct.insert(cpu.node);
  const std::vector<int> nodes(distinct.begin(), distinct.end());
  std::vector<int> home;
  for (std::size_t worker = 0; worker < workers; ++worker) {
    if (workers > gpu_nodes.size()) {
      home.push_back(nodes[worker * nodes.size() / workers]);
    } else {
      home.push_back(distinct.count(gpu_nodes[worker]) ? gpu_nodes[worker] : nodes.front());
    }
  }
  return home;
}

CpuIds of_socket(const std::vector<Cpu>& cpus, int node) {
  const auto first = std::min_element(cpus.begin(), cpus.end(), [&](const Cpu& a, const Cpu& b) {
    return std::pair(a.node != node, a.id) < std::pair(b.node != node, b.id);
  });
  return ids_where(cpus, [&](const Cpu& cpu) { return cpu.package == first->package; });
}

// Part `index` of `parts`; the first parts have one core more if the number does not divide evenly.
Result<CpuIds> share_of_cores(const std::vector<Cpu>& cpus, int node, std::size_t index, std::size_t parts) {
  std::set<int> distinct;
  for (const Cpu& cpu : cpus) {
    if (cpu.node == node) distinct.insert(cpu.core);
  }
  const std::vector<int> cores(distinct.begin(), distinct.end());
  if (cores.size() < parts) {
    return Status(kExitUsage, "NUMA node " + std::to_string(node) + " has " + std::to_string(cores.size()) +
                                  " usable cores for " + std::to_string(parts) +
                                  " workers; use node, socket or fewer workers");
  }
  const std::size_t each = cores.size() / parts, extra = cores.size() % parts;
  const std::size_t begin = index * each + std::min(index, extra), end = begin + each + (index < extra);
  return ids_where(cpus, [&](const Cpu& cpu) {
    return cpu.node == node && cpu.core >= cores[begin] && cpu.core <= cores[end - 1];
  });
}

CpuIds core_complex(const std::vector<Cpu>& cpus, int node, std::size_t index) {
  std::map<int, CpuIds> by_cache;
  for (const Cpu& cpu : cpus) {
    if (cpu.node == node) by_cache[cpu.cache].push_back(cpu.id);
  }
  std::vector<CpuIds> complexes;
  for (auto& [cache, ids] : by_cache) complexes.push_back(std::move(ids));
  std::stable_sort(complexes.begin(), complexes.end(),
                   [](const CpuIds& a, const CpuIds& b) { return a.size() > b.size(); });
  CpuIds chosen = complexes[index % complexes.size()];
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

}  // namespace

std::optional<CpuBinding> cpu_binding_of(const std::string& name) {
  if (name == "node") return CpuBinding::kNode;
  if (name == "socket") return CpuBinding::kSocket;
  if (name == "exclusive") return CpuBinding::kExclusive;
  if (name == "core-complex") return CpuBinding::kCoreComplex;
  return std::nullopt;
}

Result<std::vector<CpuIds>> bind_cpus(const std::vector<Cpu>& cpus, const std::vector<int>& gpu_nodes,
                                      CpuBinding binding, int workers) {
  if (cpus.empty()) return Status(kExitUsage, "the machine's CPU topology is not known (no /sys?)");
  const std::vector<int> home = homes(cpus, gpu_nodes, static_cast<std::size_t>(workers));
  std::map<int, std::size_t> seen;  // workers of a node so far
  std::vector<CpuIds> bound;
  for (int node : home) {
    const std::size_t index = seen[node]++;
    if (binding == CpuBinding::kNode) {
      bound.push_back(ids_where(cpus, [&](const Cpu& cpu) { return cpu.node == node; }));
    } else if (binding == CpuBinding::kSocket) {
      bound.push_back(of_socket(cpus, node));
    } else if (binding == CpuBinding::kCoreComplex) {
      bound.push_back(core_complex(cpus, node, index));
    } else {
      const auto mates = static_cast<std::size_t>(std::count(home.begin(), home.end(), node));
      ASSIGN_OR_RETURN(auto share, share_of_cores(cpus, node, index, mates));
      bound.push_back(std::move(share));
    }
  }
  return bound;
}

}  // namespace dtrun::cmd
