#include "cmd/doctor/facts_json.h"

#include "proto/json/fields.h"

namespace dtrun::doctor {

DTRUN_JSON(ProgramFacts, version, build, plan_problem, worker_path, worker, worker_wanted, config, kernel)
DTRUN_JSON(NameFacts, host, means, error, own, endpoint, listener, has_peers, endpoint_is_ours)
DTRUN_JSON(RouteFacts, address, problem, interface, mtu, speed, errors, packets, carrier_losses)
DTRUN_JSON(LimitFacts, root, clock_synchronised, files, most_files, files_wanted, processes, processes_wanted,
           locked_memory, core_size, core_pattern, ptrace_scope, debuggers)
DTRUN_JSON(MemoryFacts, shm_size, shm_free, shm_matters, stale_shm, shortage, available, available_by,
           swap_used)
DTRUN_JSON(CpuFacts, allowed, quota, quota_by, workers, lanes, steal, others, busiest, governor,
           scaling_driver, numa_nodes, vectors, fingerprint)
DTRUN_JSON(DiskFacts, output_dir, problem, free, checkpoint, write_rate, lock_problem, data, data_problem,
           read_rate)
DTRUN_JSON(GpuFacts, name, lost, ecc_errors, remap_pending, remap_failed, throttled, pcie_width,
           pcie_width_most, links, links_down, memory, memory_used, processes)
DTRUN_JSON(DeviceFacts, gpus, gpus_wanted, gpu_failure, driver, cuda, nccl, xids, rdma_down, failing)
DTRUN_JSON(NodeFacts, program, name, route, limits, memory, cpu, disk, devices)
DTRUN_JSON(PathFacts, address, failure, large, pmtu, retransmits, round_trip, round_trip_p99,
           round_trip_least, clock_offset, rate, rate_of_cpu, wrong_name, name_fails)
DTRUN_JSON(Peer, address, port, nonce)
DTRUN_JSON(Introduction, facts, peer)

std::string to_json(const Introduction& introduction) { return json_text(introduction); }
std::string to_json(const std::vector<PathFacts>& paths) { return json_text(paths); }
std::optional<Introduction> introduction_of(const std::string& json) { return parsed<Introduction>(json); }
std::optional<std::vector<PathFacts>> paths_of(const std::string& json) {
  return parsed<std::vector<PathFacts>>(json);
}

}  // namespace dtrun::doctor
