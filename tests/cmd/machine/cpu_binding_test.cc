#include "cmd/machine/cpu_binding.h"

#include <doctest/doctest.h>

namespace dtrun::cpu_binding_test {

using namespace dtrun::cmd;

namespace {

using Ids = std::vector<int>;
using Bound = std::vector<Ids>;

// `sockets` with `nodes` NUMA nodes each, `cores` cores a node, two threads a core (c and c + all cores),
// `cores_per_cache` cores that share a last-level cache.
std::vector<Cpu> machine(int sockets, int nodes, int cores, int cores_per_cache) {
  std::vector<Cpu> cpus;
  const int all = sockets * nodes * cores;
  for (int id = 0; id < 2 * all; ++id) {
    const int core = id % all;
    cpus.push_back(
        {id, core / cores, core / (cores * nodes), core, core / cores_per_cache * cores_per_cache});
  }
  return cpus;
}

Bound bound(const std::vector<Cpu>& cpus, CpuBinding binding, int workers, const Ids& gpus = {}) {
  auto bound = bind_cpus(cpus, gpus, binding, workers);
  REQUIRE_MESSAGE(bound.ok(), bound.status().message());
  return bound.value();
}

}  // namespace

TEST_CASE("node: without GPUs the workers spread over the nodes, neighbours together") {
  const auto cpus = machine(2, 1, 2, 2);  // node 0: 0 1 4 5, node 1: 2 3 6 7
  CHECK(bound(cpus, CpuBinding::kNode, 2) == Bound{{0, 1, 4, 5}, {2, 3, 6, 7}});
  CHECK(bound(cpus, CpuBinding::kNode, 4) == Bound{{0, 1, 4, 5}, {0, 1, 4, 5}, {2, 3, 6, 7}, {2, 3, 6, 7}});
  CHECK(bound(cpus, CpuBinding::kNode, 1) == Bound{{0, 1, 4, 5}});
}

TEST_CASE("node: a worker follows the GPU of its local rank") {
  const auto cpus = machine(2, 1, 2, 2);
  CHECK(bound(cpus, CpuBinding::kNode, 3, {1, 0, -1}) == Bound{{2, 3, 6, 7}, {0, 1, 4, 5}, {0, 1, 4, 5}});
  CHECK(bound(cpus, CpuBinding::kNode, 2, {1, 1, 0}) == Bound{{2, 3, 6, 7}, {2, 3, 6, 7}});
}

TEST_CASE("socket: all nodes of the worker's socket") {
  const auto cpus = machine(2, 2, 1, 1);  // nodes 0 1 on socket 0, 2 3 on socket 1
  CHECK(bound(cpus, CpuBinding::kSocket, 4) == Bound{{0, 1, 4, 5}, {0, 1, 4, 5}, {2, 3, 6, 7}, {2, 3, 6, 7}});
  CHECK(bound(cpus, CpuBinding::kSocket, 1, {3}) == Bound{{2, 3, 6, 7}});
}

TEST_CASE("exclusive: a node's cores are divided, both threads of a core stay together, the first get more") {
  const auto cpus = machine(1, 1, 5, 5);  // cores 0-4, second threads 5-9
  CHECK(bound(cpus, CpuBinding::kExclusive, 2) == Bound{{0, 1, 2, 5, 6, 7}, {3, 4, 8, 9}});
  CHECK(bound(cpus, CpuBinding::kExclusive, 5)[4] == Ids{4, 9});
  const auto refused = bind_cpus(cpus, {}, CpuBinding::kExclusive, 6);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.status().message().find("NUMA node 0 has 5 usable cores for 6 workers") == 0);
}

TEST_CASE("core-complex: each worker of a node has another last-level cache, the largest first") {
  auto cpus = machine(1, 1, 4, 2);  // caches of cores {0 1} and {2 3}; threads 4-7
  CHECK(bound(cpus, CpuBinding::kCoreComplex, 3) == Bound{{0, 1, 4, 5}, {2, 3, 6, 7}, {0, 1, 4, 5}});
  std::erase_if(cpus, [](const Cpu& cpu) { return cpu.id == 0; });  // this process may not use it
  CHECK(bound(cpus, CpuBinding::kCoreComplex, 2) == Bound{{2, 3, 6, 7}, {1, 4, 5}});
}

TEST_CASE("CPUs that this process may not use are nobody's") {
  auto cpus = machine(2, 1, 2, 2);
  std::erase_if(cpus, [](const Cpu& cpu) { return cpu.node == 0; });
  CHECK(bound(cpus, CpuBinding::kNode, 2) == Bound{{2, 3, 6, 7}, {2, 3, 6, 7}});
  CHECK(bound(cpus, CpuBinding::kNode, 1, {0}) == Bound{{2, 3, 6, 7}});  // its GPU's node has none
  CHECK_FALSE(bind_cpus({}, {}, CpuBinding::kNode, 1).ok());
}

}  // namespace dtrun::cpu_binding_test
