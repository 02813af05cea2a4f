#include "cmd/plan/plan_json.h"

#include <signal.h>

#include <chrono>

#include "proto/json/fields.h"
#include "rendezvous/identity/job_key.h"

namespace dtrun {

DTRUN_JSON(Gpu, index, number, name, uuid, pci, memory)

namespace cmd {
namespace {

using std::chrono::milliseconds;

double seconds(milliseconds value) { return static_cast<double>(value.count()) / 1000; }
Json or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }
Json or_null(int number) { return number == 0 ? Json(nullptr) : Json(number); }
Json or_null(milliseconds time) { return time.count() == 0 ? Json(nullptr) : Json(seconds(time)); }

Json page_port_json(const PageSpec& page) {
  if (!page.port) return "off";
  return *page.port == 0 ? Json("auto") : Json(*page.port);
}

Json rendezvous_json(const RendezvousSpec& rendezvous) {
  const Hosting& hosting = rendezvous.hosting;
  const bool standalone = std::holds_alternative<Standalone>(hosting);
  const std::vector<std::string> hosts = hosts_of(hosting);
  const std::vector<int> ports = ports_of(hosting);
  const std::optional<bool> is_host = standalone ? std::nullopt : may_host(hosting);
  return {
      {"standalone", standalone},
      {"host", standalone ? Json(nullptr) : Json(hosts.front())},
      {"hosts", std::holds_alternative<Candidates>(hosting) ? Json(hosts) : Json(nullptr)},
      {"is_host", is_host},
      {"port", standalone ? Json(nullptr) : Json(ports.front())},
      {"more_ports", ports.size() > 1 ? Json(std::vector(ports.begin() + 1, ports.end())) : Json(nullptr)},
      {"key_fingerprint", rendezvous.key ? Json(rendezvous.key->fingerprint()) : Json(nullptr)},
      {"master_addr", or_null(rendezvous.master_address)},
      {"master_port", or_null(rendezvous.master_port)},
      {"local_addr", or_null(rendezvous.local_address)},
      {"http_port", page_port_json(rendezvous.page)},
      {"http_bind", or_null(rendezvous.page.address)},
      {"join_timeout", seconds(rendezvous.join_timeout)},
      {"last_call_timeout", seconds(rendezvous.last_call)},
      {"keep_alive_timeout", seconds(rendezvous.keep_alive_timeout)},
      {"read_timeout", or_null(rendezvous.read_timeout.value_or(milliseconds(0)))}};
}

// "console", "file", "both" or "none".
const char* target(const StreamTargets& stream, bool files) {
  if (stream.file && files) return stream.console ? "both" : "file";
  return stream.console ? "console" : "none";
}

Json output_json(const JobSpec& spec) {
  const OutputSpec& output = spec.output;
  Json workers = Json::array();
  for (int rank = 0; rank < spec.nproc; ++rank) {
    const WorkerOutput worker = output.of(rank);
    const bool files = !spec.log_dir.empty();
    workers.push_back({{"stdout", target(worker.out, files)}, {"stderr", target(worker.err, files)}});
  }
  return {{"log_prefix", output.prefix},
          {"log_timestamps", output.timestamps},
          {"log_max_size", output.max_file_size == 0 ? Json(nullptr) : Json(output.max_file_size)},
          {"duplicate_stdout_filters", output.stdout_filters},
          {"duplicate_stderr_filters", output.stderr_filters},
          {"color", kColourModes[static_cast<int>(output.colour)]},
          {"progress", kProgressModes[static_cast<int>(output.progress)]},
          {"workers", std::move(workers)}};
}

Json signal_names(const std::vector<int>& numbers) {
  Json names = Json::array();
  for (int number : numbers) names.push_back("SIG" + std::string(sigabbrev_np(number)));
  return names;
}

void add_program(const JobSpec& spec, Json* plan) {
  (*plan)["recovery"] = in_memory_recovery(spec) ? "memory" : "checkpoint";
  if (const auto* trainer = std::get_if<BuiltinTrainer>(&spec.program)) {
    (*plan)["program"] = {trainer->worker_binary.string()};
    (*plan)["lanes"] = trainer->lanes;
    (*plan)["config"] = parse_json(trainer->config_json);
    return;
  }
  (*plan)["program"] = std::get<ExternalProgram>(spec.program).argv;
  (*plan)["virtual_local_rank"] = spec.virtual_local_rank;
}

}  // namespace

std::string plan_json(const JobSpec& spec) {
  Json plan;
  plan["run_id"] = spec.run_id;
  plan["place"] = or_null(spec.place);
  plan["nnodes"] = {{"min", spec.nodes.min}, {"max", spec.nodes.max}};
  plan["nproc_per_node"] = spec.nproc;
  plan["node_rank"] = spec.node_rank;
  plan["topology"] = spec.topology.empty() ? Json(nullptr) : Json(spec.topology);
  plan["cpus"] = or_null(spec.cpus);
  plan["cpus_by"] = or_null(spec.cpus_by);
  plan["role"] = spec.role;
  plan["rendezvous"] = rendezvous_json(spec.rendezvous);
  plan["max_restarts"] = spec.max_restarts;
  plan["crash_loop_limit"] = or_null(spec.crash_loop_limit);
  plan["no_restart_exit_codes"] = spec.no_restart_exit_codes;
  plan["shutdown_timeout"] = seconds(spec.shutdown_timeout);
  plan["signals_to_handle"] = signal_names(spec.signals_to_handle);
  plan["heartbeat_timeout"] = or_null(spec.heartbeat_timeout);
  plan["stall_timeout"] = or_null(spec.stall_timeout);
  plan["notice_after"] = spec.notice_after ? Json(seconds(*spec.notice_after)) : Json(nullptr);
  plan["log_dir"] = or_null(spec.log_dir.string());
  plan["on_event"] = or_null(spec.on_event);
  plan["output"] = output_json(spec);
  plan["device"] = or_null(spec.device);
  plan["gpus"] = spec.gpus.empty() ? Json(nullptr) : Json(spec.gpus);
  plan["worker_cpus"] = spec.worker_cpus.empty() ? Json(nullptr) : Json(spec.worker_cpus);
  add_program(spec, &plan);
  // Program and paths may have any bytes, also some that are not UTF-8.
  return json_text(plan, 2) + "\n";
}

}  // namespace cmd
}  // namespace dtrun
