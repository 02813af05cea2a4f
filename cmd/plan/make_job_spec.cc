// The order of the parts in make_job_spec() matters: the config's launch section fills in options before they
// are read, and the place that a cluster gives comes before workers, rendezvous and topology, which devices,
// trainer and processors depend on.
#include "cmd/plan/make_job_spec.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <span>

#include "cmd/machine/cpu_binding.h"
#include "cmd/machine/device_choice.h"
#include "cmd/plan/cluster_place.h"
#include "cmd/plan/config_file.h"
#include "cmd/plan/draft.h"
#include "cmd/plan/output_options.h"
#include "cmd/plan/rendezvous_options.h"
#include "proto/core/contract.h"
#include "worker/config/bf16.h"
#include "worker/config/config.h"
#include "worker/config/cuda.h"
#include "worker/config/options.h"
#include "worker/data/dataset.h"

namespace dtrun::cmd {
namespace {

using std::chrono::milliseconds;

// `gpus` that workers can use; if there are none, `why_none`.
Result<int> parse_nproc(const Given& given, int cpus, int gpus, const std::string& why_none) {
  if (given.value == "cpu") return cpus;
  if (given.value == "auto") return gpus > 0 ? gpus : cpus;
  if (given.value == "gpu") {
    if (gpus > 0) return gpus;
    return usage(quoted(given) + ": " + why_none + "; use cpu, auto or a number");
  }
  return parse_count(
      given, kMaxWorkersPerNode,
      "a number of workers (1 to " + std::to_string(kMaxWorkersPerNode) + "), auto, cpu or gpu");
}

constexpr int kMaxLanes = 4096;  // threads of one worker

// torchrun's run_path: the script sees itself as the main module and the first argument.
constexpr char kRunPath[] =
    "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')";

Status check_overrides(std::span<const std::string> overrides, const std::string& path) {
  for (const std::string& word : overrides) {
    if (word.find('=') == std::string::npos) {
      return usage(word + ": after " + path +
                   " only key=value overrides are expected, e.g. train.max_steps=10");
    }
  }
  return {};
}

// Adds the options that the config's launch section gives and neither the command line nor the environment
// does.
void add_launch_section(worker::JobConfig& config, Options* options) {
  for (const worker::Option& entry : worker::config_options()) {
    if (worker::group_of(entry) != "launch") continue;
    const std::string name(worker::name_of(entry));
    if (const auto value = worker::launch_value(entry, config)) {
      options->values.try_emplace(name, Given{.value = *value, .source = "launch." + name});
    }
  }
}

Status read_config(Draft& draft) {
  ASSIGN_OR_RETURN(draft.config, settle_config(&draft.options));
  return worker::check_dataset(draft.config->data).status();
}

Status read_program(Draft& draft) {
  const Options& options = draft.options;
  if (names_config(options)) return read_config(draft);
  ExternalProgram program{options.program};
  const bool module = options.flag("module"), run_path = options.flag("run_path");
  if (module && options.flag("no_python")) return usage("--module and --no_python exclude each other");
  const bool script = program.argv[0].ends_with(".py");
  if (module || run_path || (script && !options.flag("no_python"))) {
    const char* chosen = draft.environment("PYTHON_EXEC");
    const std::string& venv = draft.machine.venv_python;
    std::vector<std::string> prefix{chosen && *chosen ? chosen : venv.empty() ? "python3" : venv, "-u"};
    if (run_path) {
      prefix.insert(prefix.end(), {"-c", kRunPath});
    } else if (module) {
      prefix.push_back("-m");
    }
    program.argv.insert(program.argv.begin(), prefix.begin(), prefix.end());
  }
  draft.spec.program = std::move(program);
  return {};
}

// Why this job's workers cannot use the GPUs of this machine; empty: there are some, and they can.
std::string gpu_obstacle(Draft& draft) {
  if (!draft.config)
    return draft.gpus().gpus.empty() ? "no GPU here (" + draft.gpus().why_none + ")" : std::string();
  if (draft.config->device == worker::DeviceType::kCpu) return "/device is \"cpu\"";
  const std::string refusal = worker::cuda_refusal(draft.machine.worker_cuda);
  return refusal.empty() ? why_no_cuda(draft.gpus(), draft.machine.worker_cuda) : refusal;
}

Status read_workers(Draft& draft) {
  JobSpec& spec = draft.spec;
  RETURN_IF_ERROR(draft.read("nnodes", &spec.nodes, parse_nodes));
  const auto parse = [&](const Given& given) -> Result<int> {
    const bool counts = given.value == "gpu" || given.value == "auto";
    const std::string obstacle = counts ? gpu_obstacle(draft) : "";
    const int gpus = counts && obstacle.empty() ? static_cast<int>(draft.gpus().gpus.size()) : 0;
    return parse_nproc(given, draft.cpus(), gpus, obstacle);
  };
  RETURN_IF_ERROR(settle_workers(draft, [&] { return gpu_obstacle(draft).empty(); }));
  RETURN_IF_ERROR(draft.read("nproc_per_node", &spec.nproc, parse));
  return draft.read("node_rank", &spec.node_rank, [&](const Given& rank) -> Result<int> {
    Result<int> number = parse_int(rank, 0, "a node's rank, 0 or more");
    if (!number.ok() || number.value() < spec.nodes.max) return number;
    return usage(quoted(rank) + ": expected less than the number of nodes, " +
                 std::to_string(spec.nodes.max));
  });
}

Status read_topology(Draft& draft) {
  constexpr std::size_t kLongest = 256;
  const char* const of_slurm = draft.environment("SLURM_TOPOLOGY_ADDR");
  if (of_slurm != nullptr && std::string_view(of_slurm).size() <= kLongest) draft.spec.topology = of_slurm;
  const auto given = draft.options.given("topology");
  if (!given) return {};
  if (given->value.size() > kLongest)
    return usage(quoted(*given) + ": expected at most " + std::to_string(kLongest) + " characters");
  draft.spec.topology = given->value;
  if (draft.spec.nodes.max == 1) draft.no_effect("topology", " on a single node");
  return {};
}

// With the env backend each worker has an agent of its own, and LOCAL_RANK tells them apart.
std::vector<Gpu> gpus_for_workers(Draft& draft) {
  std::vector<Gpu> gpus = draft.result.value_or(GpuSight()).gpus;
  const char* local_rank = draft.environment("LOCAL_RANK");
  const bool exported = rendezvous_backend(draft.options) == "env" && local_rank != nullptr;
  const int first = exported ? std::atoi(local_rank) : draft.spec.first_local_rank;
  const auto skipped = static_cast<std::size_t>(std::max(0, first));
  gpus.erase(gpus.begin(), gpus.begin() + static_cast<std::ptrdiff_t>(std::min(skipped, gpus.size())));
  return gpus;
}

// The GPUs of a program's workers are known if it has one worker for each.
Status read_device(Draft& draft) {
  JobSpec& spec = draft.spec;
  if (!draft.config) {
    const auto nproc = draft.options.given("nproc_per_node");
    const bool counted = nproc && (nproc->value == "gpu" || nproc->value == "auto");
    if (counted && draft.gpus().gpus.size() == static_cast<std::size_t>(spec.nproc))
      spec.gpus = draft.gpus().gpus;
    if (!spec.gpus.empty() || draft.machine.has_driver) spec.gpu_reader = draft.machine.gpu_reader;
    return {};
  }
  const worker::JobConfig& config = *draft.config;
  const std::string obstacle = config.device == worker::DeviceType::kCpu ? "" : gpu_obstacle(draft);
  Result<DeviceChoice> choice = choose_device(config.device, obstacle, gpus_for_workers(draft), spec.nproc);
  if (!choice.ok()) return choice.status().within(draft.options.program[0]);
  spec.gpus = choice.value().gpus;
  spec.device = choice.value().why;
  if (!spec.gpus.empty()) spec.gpu_reader = draft.machine.gpu_reader;
  if (spec.gpus.empty() && config.train.bf16 && !draft.machine.bf16)
    return Status(kExitConfig, draft.options.program[0] + ": " + worker::bf16_refusal());
  return {};
}

// torchrun gives each worker one thread, which would leave most of the node idle.
void read_threads(Draft& draft) {
  JobSpec& spec = draft.spec;
  spec.cpus = draft.cpus();
  spec.cpus_by = spec.cpus < draft.machine.cpus ? draft.place->job : draft.machine.cpus_by;
  spec.omp_num_threads = std::max(1, draft.cpus() / spec.nproc);
  const char* chosen = draft.environment("OMP_NUM_THREADS");
  if (draft.config || chosen != nullptr || spec.nproc == 1) return;
  draft.notice("OMP_NUM_THREADS=" + std::to_string(spec.omp_num_threads) + " for each worker (" +
               std::to_string(draft.cpus()) + " cores, " + std::to_string(spec.nproc) +
               " workers; set it to have another)");
}

Status read_policy(Draft& draft) {
  Status status = draft.read("max_restarts", &draft.spec.max_restarts, [](const Given& restarts) {
    return parse_int(restarts, 0, "a number of restarts, 0 or more");
  });
  if (!status.ok()) return status;
  status = draft.read("crash_loop_limit", &draft.spec.crash_loop_limit, [](const Given& limit) {
    return parse_int(limit, 0, "a number of failures, or 0 for no limit");
  });
  if (!status.ok()) return status;
  status = draft.read("no_restart_exit_codes", &draft.spec.no_restart_exit_codes, parse_exit_codes);
  if (!status.ok()) return status;
  if (draft.config) draft.no_effect("no_restart_exit_codes", ": the built-in trainer knows its own failures");
  if (const auto role = draft.options.given("role")) draft.spec.role = role->value;
  return draft.read("signals_to_handle", &draft.spec.signals_to_handle, parse_signals);
}

// Refuses a short timeout: it would take the time that any program needs between two steps for a hang.
Result<milliseconds> parse_hang_timeout(const Given& given) {
  Result<milliseconds> seconds = parse_seconds(given);
  if (!seconds.ok() || seconds.value() == milliseconds(0) || seconds.value() >= milliseconds(1000))
    return seconds;
  return usage(quoted(given) + ": expected at least 1 second, or 0 for never");
}

Status read_times(Draft& draft) {
  static constexpr char kTorchs[] = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";
  const char* variable = draft.environment(kTorchs);
  if (variable != nullptr && *variable != '\0') {
    draft.options.add_default("shutdown_timeout", {.value = variable, .source = kTorchs});
  }
  Status status = draft.read("shutdown_timeout", &draft.spec.shutdown_timeout, parse_seconds);
  if (!status.ok()) return status;
  status = draft.read("heartbeat_timeout", &draft.spec.heartbeat_timeout, parse_hang_timeout);
  if (!status.ok()) return status;
  status = draft.read("stall_timeout", &draft.spec.stall_timeout, parse_hang_timeout);
  if (!status.ok() || !draft.options.has("notice_after")) return status;
  return draft.read("notice_after", &draft.spec.notice_after.emplace(), parse_hang_timeout);
}

// Options that only torchrun needs, because of how it is built. They are checked and have no effect.
Status read_accepted(Draft& draft) {
  if (const auto method = draft.options.given("start_method")) {
    const std::set<std::string> methods{"spawn", "fork", "forkserver"};
    if (!methods.count(method->value)) return usage(quoted(*method) + ": expected spawn, fork or forkserver");
  }
  milliseconds unused{};
  RETURN_IF_ERROR(draft.read("monitor_interval", &unused, parse_seconds));
  if (draft.config && (std::holds_alternative<Standalone>(draft.spec.rendezvous.hosting) ||
                       draft.options.has("rdzv_endpoint"))) {
    draft.no_effect("master_port", " on the built-in trainer");
  }
  draft.no_effect("start_method", ": dtrun starts programs, not Python functions");
  draft.no_effect("monitor_interval", ": dtrun waits on events, it does not poll");
  draft.no_effect("event_log_handler", ": see events.jsonl in --log_dir");
  draft.no_effect("logs_specs", ": dtrun has no Python plug-ins, see the options under Output");
  return {};
}

Status read_virtual_local_rank(Draft& draft) {
  if (!draft.options.flag("virtual_local_rank")) return {};
  if (draft.config) {
    draft.no_effect("virtual_local_rank", " on the built-in trainer");
    return {};
  }
  draft.spec.virtual_local_rank = true;
  const char* visible = draft.environment("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return {};
  const std::string devices = visible;
  const auto count = devices.empty() ? 0 : std::count(devices.begin(), devices.end(), ',') + 1;
  if (count >= draft.spec.nproc) return {};
  return usage("--virtual_local_rank: " + std::to_string(draft.spec.nproc) +
               " workers need as many GPUs, but CUDA_VISIBLE_DEVICES=" + devices);
}

std::vector<int> gpu_nodes(Draft& draft) {
  std::vector<int> nodes;
  for (const Gpu& gpu : draft.gpus().gpus) nodes.push_back(gpu.numa_node);
  return nodes;
}

Status read_cpus(Draft& draft) {
  const auto mode = draft.options.given("numa_binding");
  if (!mode) return {};
  const auto binding = cpu_binding_of(mode->value);
  if (!binding) return usage(quoted(*mode) + ": expected node, socket, exclusive or core-complex");
  const std::size_t usable = draft.machine.topology.size();
  Result<std::vector<std::vector<int>>> cpus =
      bind_cpus(draft.machine.topology, gpu_nodes(draft), *binding, draft.spec.nproc);
  if (!cpus.ok()) return cpus.status().within(quoted(*mode));
  if (std::ranges::all_of(cpus.value(), [&](const auto& some) { return some.size() == usable; })) {
    draft.notice(quoted(*mode) + " has no effect: there is only one choice on this machine, all of its CPUs");
  }
  draft.spec.worker_cpus = cpus.value();
  return {};
}

// A GPU is one lane. With the env backend the default is one, too: the agent does not know how many workers
// this machine has.
Status read_lanes(Draft& draft, int* lanes) {
  if (draft.config && !draft.spec.gpus.empty()) {
    draft.no_effect("lanes", ": a worker with a GPU has one lane");
    return {};
  }
  *lanes = rendezvous_backend(draft.options) == "env" ? 1 : std::max(1, draft.cpus() / draft.spec.nproc);
  const auto chosen = draft.options.given("lanes");
  if (!chosen || chosen->value == "auto") return {};
  ASSIGN_OR_RETURN(
      int count,
      parse_count(*chosen, kMaxLanes, "a number of lanes (1 to " + std::to_string(kMaxLanes) + ") or auto"));
  *lanes = count;
  if (!draft.config) draft.notice(quoted(*chosen) + " has no effect: only the built-in trainer has lanes");
  return {};
}

Status read_recovery(Draft& draft, bool* in_memory_recovery) {
  const auto chosen = draft.options.given("recovery");
  if (!chosen) return {};
  if (chosen->value != "memory" && chosen->value != "checkpoint")
    return usage(quoted(*chosen) + ": expected memory or checkpoint");
  *in_memory_recovery = chosen->value == "memory";
  return {};
}

Status read_trainer(Draft& draft) {
  int lanes = 1;
  bool in_memory_recovery = draft.config.has_value();
  RETURN_IF_ERROR(read_lanes(draft, &lanes));
  RETURN_IF_ERROR(read_recovery(draft, &in_memory_recovery));
  read_threads(draft);
  if (!draft.config) {
    std::get<ExternalProgram>(draft.spec.program).in_memory_recovery = in_memory_recovery;
    return {};
  }
  if (!draft.options.has("role")) draft.spec.role = "trainer";
  const bool in_memory_checkpoints = draft.config->recovery.in_memory_checkpoint_steps > 0;
  if (in_memory_checkpoints && !in_memory_recovery)
    return Status(kExitConfig, quoted(*draft.options.given("recovery")) +
                                   " begins again from checkpoints, so it has no use for the copies that "
                                   "/recovery/in_memory_checkpoint_steps asks for; leave out one of them");
  const std::string text = worker::to_canonical_json(*draft.config);
  draft.spec.describe_difference = [text](const std::string& theirs) {
    return worker::first_difference(text, theirs);
  };
  draft.spec.program = BuiltinTrainer{.worker_binary = draft.machine.worker_binary,
                                      .config_json = text,
                                      .output_dir = draft.config->output_dir,
                                      .lanes = lanes,
                                      .in_memory_recovery = in_memory_recovery,
                                      .cuda = !draft.spec.gpus.empty(),
                                      .only_agent_stops = draft.spec.may_be_started_again,
                                      .in_memory_checkpoints = in_memory_checkpoints};
  return {};
}

}  // namespace

Result<worker::JobConfig> settle_config(Options* options) {
  const std::string& path = options->program[0];
  const std::span<const std::string> overrides(options->program.begin() + 1, options->program.end());
  RETURN_IF_ERROR(check_overrides(overrides, path));
  ASSIGN_OR_RETURN(ConfigFile file, read_job_config(path, overrides, std::move(options->config_text)));
  options->config_text = std::move(file.text);
  add_launch_section(file.config, options);
  return std::move(file.config);
}

Status nothing_to_run(const Options& options) {
  for (const auto& [name, given] : options.values)
    if (given.source.starts_with("--") && (given.value.ends_with(".py") || given.value.ends_with(".json")))
      return usage("nothing to run: " + given.source + " took " + given.value +
                   " for its value; write its own value before that");
  return usage("nothing to run: name a CONFIG.json, a SCRIPT.py or a program (dtrun --help shows examples)");
}

Result<JobSpec> make_job_spec(const Options& options, const Machine& machine, const Environment& environment,
                              const Notice& notice) {
  if (options.program.empty()) return nothing_to_run(options);
  Draft draft{
      .typed = options, .options = options, .machine = machine, .environment = environment, .notice = notice};
  const Status status =
      run_parts(draft, {read_program, read_place, read_workers, read_rendezvous_options, tell_place,
                        read_topology, read_device, read_trainer, read_policy, read_times, read_accepted,
                        read_virtual_local_rank, read_cpus, read_output_options});
  if (!status.ok()) return status;
  return std::move(draft.spec);
}

}  // namespace dtrun::cmd
