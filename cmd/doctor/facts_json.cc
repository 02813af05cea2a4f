#include "cmd/doctor/facts_json.h"

#include <nlohmann/json.hpp>

namespace dtrun::doctor {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ProgramFacts, version, build, plan_problem, worker_path, worker,
                                   worker_wanted, config, kernel)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NameFacts, host, means, error, own, endpoint, listener, has_peers,
                                   endpoint_is_ours)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RouteFacts, address, problem, interface, mtu, speed, errors, packets,
                                   carrier_losses)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LimitFacts, root, clock_synchronised, files, most_files, files_wanted,
                                   processes, processes_wanted, locked_memory, core_size, core_pattern,
                                   ptrace_scope, debuggers)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MemoryFacts, shm_size, shm_free, shm_matters, stale_shm, shortage,
                                   available, available_by, swap_used)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CpuFacts, allowed, quota, quota_by, workers, lanes, steal, others, busiest,
                                   governor, scaling_driver, numa_nodes, vectors, fingerprint)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DiskFacts, output_dir, problem, free, checkpoint, write_rate, lock_problem,
                                   data, data_problem, read_rate)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GpuFacts, name, lost, ecc_errors, remap_pending, remap_failed, throttled,
                                   pcie_width, pcie_width_most, links, links_down, memory, memory_used,
                                   processes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DeviceFacts, gpus, gpus_wanted, gpu_failure, driver, cuda, nccl, xids,
                                   rdma_down, failing)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NodeFacts, program, name, route, limits, memory, cpu, disk, devices)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PathFacts, address, failure, large, pmtu, retransmits, round_trip,
                                   round_trip_p99, round_trip_least, clock_offset, rate, rate_of_cpu,
                                   wrong_name, name_fails)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Peer, address, port, nonce)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Introduction, facts, peer)

namespace {

template <typename Value>
std::string text_of_value(const Value& value) {
  return nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

template <typename Value>
std::optional<Value> value_of_text(const std::string& text) {
  try {
    return nlohmann::json::parse(text).get<Value>();
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

std::string to_json(const Introduction& introduction) { return text_of_value(introduction); }
std::string to_json(const std::vector<PathFacts>& paths) { return text_of_value(paths); }
std::optional<Introduction> introduction_of(const std::string& json) {
  return value_of_text<Introduction>(json);
}
std::optional<std::vector<PathFacts>> paths_of(const std::string& json) {
  return value_of_text<std::vector<PathFacts>>(json);
}

}  // namespace dtrun::doctor
