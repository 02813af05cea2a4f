#include "cmd/plan/launch_plan.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "cmd/options/values.h"
#include "cmd/plan/output_options.h"
#include "cmd/plan/rendezvous_options.h"
#include "proto/base/ids.h"
#include "proto/core/contract.h"
#include "proto/core/nearest.h"
#include "worker/config/config.h"
#include "worker/data/dataset.h"

namespace dtrun::cmd {
namespace {

using std::chrono::milliseconds;

Result<int> parse_nproc(const Given& given, int cpus, int gpus) {
  if (given.value == "cpu") return cpus;
  if (given.value == "auto") return gpus > 0 ? gpus : cpus;
  if (given.value == "gpu") {
    if (gpus > 0) return gpus;
    return usage(quoted(given) + ": no GPU that can be used on this machine; use cpu, auto or a number");
  }
  return parse_count(
      given, kMaxWorkersPerNode,
      "a number of workers (1 to " + std::to_string(kMaxWorkersPerNode) + "), auto, cpu or gpu");
}

// A file may have no end (/dev/zero): a few bytes more than a config may have are enough to refuse it.
Result<std::string> read_file(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return Status(kExitNoInput, path + ": is a directory, expected a config file");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return errno_status(kExitNoInput, path, errno)
        .within("cannot read the config (see configs/ for examples)");
  }
  std::string text(worker::kLargestConfig + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (file.bad()) return errno_status(kExitNoInput, path, errno).within("cannot read the config");
  return text;
}

constexpr int kMaxLanes = 4096;  // threads of one worker

// torchrun's run_path: the script sees itself as the main module and the first argument.
constexpr char kRunPath[] =
    "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')";

// Fills a JobSpec step by step; the first failure is kept and ends the filling.
class Planner {
 public:
  Planner(const Options& options, const Machine& machine, const Environment& environment,
          const Notice& notice)
      : options_(options), machine_(machine), environment_(environment), notice_(notice) {}

  Result<JobSpec> plan() {
    const Status status = fill();
    if (!status.ok()) return status;
    return spec_;
  }

 private:
  Status fill() {
    if (options_.program.empty()) {
      return usage(
          "nothing to run: name a CONFIG.json, a SCRIPT.py or a program (dtrun --help shows examples)");
    }
    for (auto part :
         {&Planner::read_program, &Planner::read_workers, &Planner::read_rendezvous, &Planner::read_policy,
          &Planner::read_cpus, &Planner::read_output, &Planner::finish_program}) {
      Status status = (this->*part)();
      if (!status.ok()) return status;
    }
    return Status();
  }

  bool is_config() const {
    return !options_.program_is_verbatim && !options_.flag("no_python") && !options_.flag("module") &&
           !options_.flag("run_path") && options_.program[0].ends_with(".json");
  }

  Status read_program() {
    if (is_config()) return read_config();
    ExternalProgram program{options_.program};
    const bool module = options_.flag("module"), run_path = options_.flag("run_path");
    if (module && options_.flag("no_python")) return usage("--module and --no_python exclude each other");
    const bool script = program.argv[0].ends_with(".py");
    if (module || run_path || (script && !options_.flag("no_python"))) {
      const char* python = environment_("PYTHON_EXEC");
      std::vector<std::string> prefix{python && *python ? python : "python3", "-u"};
      if (run_path) {
        prefix.insert(prefix.end(), {"-c", kRunPath});
      } else if (module) {
        prefix.push_back("-m");
      }
      program.argv.insert(program.argv.begin(), prefix.begin(), prefix.end());
    }
    spec_.program = std::move(program);
    return Status();
  }

  Status read_config() {
    const std::string& path = options_.program[0];
    const std::span<const std::string> overrides(options_.program.begin() + 1, options_.program.end());
    for (const std::string& word : overrides) {
      if (word.starts_with("-")) return usage(word + ": dtrun's options come before " + path);
      if (word.find('=') == std::string::npos) {
        return usage(word + ": after " + path +
                     " only key=value overrides are expected, e.g. train.max_steps=10");
      }
    }
    Result<std::string> text = read_file(path);
    if (!text.ok()) return text.status();
    Result<worker::JobConfig> config = worker::parse_config(text.value(), path, overrides);
    if (!config.ok()) return config.status();
    config_ = std::move(config).value();
    return worker::check_dataset(config_->data);
  }

  // Flag or environment first, then the config's launch section.
  std::optional<Given> given(const std::string& name) const {
    if (options_.has(name)) return options_.values.at(name);
    if (!config_) return std::nullopt;
    const worker::LaunchConfig& launch = config_->launch;
    const auto from = [&](const std::optional<std::string>& value) -> std::optional<Given> {
      if (!value) return std::nullopt;
      return Given{*value, "launch." + name};
    };
    if (name == "nproc_per_node") return from(launch.nproc_per_node);
    if (name == "nnodes") return from(launch.nnodes);
    if (name == "lanes") return from(launch.lanes);
    if (name == "log_dir") return from(launch.log_dir);
    if (name == "max_restarts" && launch.max_restarts)
      return Given{std::to_string(*launch.max_restarts), "launch.max_restarts"};
    return std::nullopt;
  }

  void no_effect(const std::string& name, const std::string& why) const {
    say_no_effect(options_, name, why, notice_);
  }

  Status read_rendezvous() {
    Status status = read_rendezvous_options(options_, environment_, notice_, &spec_);
    return status.ok() ? read_lanes() : status;
  }

  Status read_workers() {
    if (const auto nodes = given("nnodes")) {
      Result<NodeCount> count = parse_nodes(*nodes);
      if (!count.ok()) return count.status();
      spec_.nodes = count.value();
    }
    if (const auto nproc = given("nproc_per_node")) {
      const int gpus = config_ ? machine_.trainer_gpus : machine_.gpus;
      Result<int> count = parse_nproc(*nproc, machine_.cpus, gpus);
      if (!count.ok()) return count.status();
      spec_.nproc = count.value();
    }
    if (const auto rank = given("node_rank")) {
      Result<int> number = parse_int(*rank, 0, "a node's rank, 0 or more");
      if (!number.ok()) return number.status();
      if (number.value() >= spec_.nodes.max) {
        return usage(quoted(*rank) + ": expected less than the number of nodes, " +
                     std::to_string(spec_.nodes.max));
      }
      spec_.node_rank = number.value();
    }
    return Status();
  }

  // A worker of the env backend knows nothing of the others on its machine.
  Status read_lanes() {
    lanes_ = options_.has("rdzv_backend") && options_.values.at("rdzv_backend").value == "env"
                 ? 1
                 : std::max(1, machine_.cpus / spec_.nproc);
    if (const auto lanes = given("lanes"); lanes && lanes->value != "auto") {
      Result<int> count = parse_count(*lanes, kMaxLanes,
                                      "a number of lanes (1 to " + std::to_string(kMaxLanes) + ") or auto");
      if (!count.ok()) return count.status();
      lanes_ = count.value();
      if (!config_) notice_(quoted(*lanes) + " has no effect: only the built-in trainer has lanes");
    }
    read_threads();
    return Status();
  }

  // torchrun gives each worker one thread; so much of the node would stay idle.
  void read_threads() {
    spec_.omp_num_threads = std::max(1, machine_.cpus / spec_.nproc);
    const char* chosen = environment_("OMP_NUM_THREADS");
    if (config_ || chosen != nullptr || spec_.nproc == 1) return;
    notice_("OMP_NUM_THREADS=" + std::to_string(spec_.omp_num_threads) + " for each worker (" +
            std::to_string(machine_.cpus) + " cores, " + std::to_string(spec_.nproc) +
            " workers; set it to have another)");
  }

  Status read_policy() {
    if (const auto restarts = given("max_restarts")) {
      Result<int> count = parse_int(*restarts, 0, "a number of restarts, 0 or more");
      if (!count.ok()) return count.status();
      spec_.max_restarts = count.value();
    }
    if (const auto codes = given("no_restart_exit_codes")) {
      Result<std::vector<std::pair<int, int>>> ranges = parse_exit_codes(*codes);
      if (!ranges.ok()) return ranges.status();
      spec_.no_restart_exit_codes = ranges.value();
      if (config_) notice_(codes->source + " has no effect: the built-in trainer knows its own failures");
    }
    if (const auto grace = shutdown_timeout()) {
      Result<milliseconds> seconds = parse_seconds(*grace);
      if (!seconds.ok()) return seconds.status();
      spec_.shutdown_timeout = seconds.value();
    }
    if (Status status = read_hang_timeout("heartbeat_timeout", &spec_.heartbeat_timeout); !status.ok())
      return status;
    if (Status status = read_hang_timeout("stall_timeout", &spec_.stall_timeout); !status.ok()) return status;
    if (const auto names = given("signals_to_handle")) {
      Result<std::vector<int>> signals = parse_signals(*names);
      if (!signals.ok()) return signals.status();
      spec_.signals_to_handle = signals.value();
    }
    if (const auto role = given("role")) spec_.role = role->value;
    return read_accepted();
  }

  // Shorter ones would take the time that any program needs between two steps for a hang.
  Status read_hang_timeout(const std::string& name, milliseconds* timeout) {
    const auto text = given(name);
    if (!text) return Status();
    Result<milliseconds> seconds = parse_seconds(*text);
    if (!seconds.ok()) return seconds.status();
    if (seconds.value() != milliseconds(0) && seconds.value() < milliseconds(1000)) {
      return usage(quoted(*text) + ": expected at least 1 second, or 0 for never");
    }
    *timeout = seconds.value();
    return Status();
  }

  std::optional<Given> shutdown_timeout() const {
    static constexpr char kTorchs[] = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";
    if (auto option = given("shutdown_timeout")) return option;
    const char* variable = environment_(kTorchs);
    if (variable == nullptr || *variable == '\0') return std::nullopt;
    return Given{variable, kTorchs};
  }

  // Options that torchrun needs because of how it is built.
  Status read_accepted() {
    if (const auto method = given("start_method")) {
      const std::set<std::string> methods{"spawn", "fork", "forkserver"};
      if (!methods.count(method->value))
        return usage(quoted(*method) + ": expected spawn, fork or forkserver");
    }
    if (const auto interval = given("monitor_interval")) {
      Result<milliseconds> seconds = parse_seconds(*interval);
      if (!seconds.ok()) return seconds.status();
    }
    if (config_ && (spec_.rendezvous.standalone || options_.has("rdzv_endpoint"))) {
      no_effect("master_port", " on the built-in trainer");
    }
    no_effect("start_method", ": dtrun starts programs, not Python functions");
    no_effect("monitor_interval", ": dtrun waits on events, it does not poll");
    no_effect("event_log_handler", ": see events.jsonl in --log_dir");
    no_effect("logs_specs", ": dtrun has no Python plug-ins, see the options under Output");
    return Status();
  }

  Status read_cpus() {
    if (options_.flag("virtual_local_rank")) {
      Status status = read_virtual_local_rank();
      if (!status.ok()) return status;
    }
    const auto mode = given("numa_binding");
    if (!mode) return Status();
    const auto binding = cpu_binding_of(mode->value);
    if (!binding) return usage(quoted(*mode) + ": expected node, socket, exclusive or core-complex");
    Result<std::vector<std::vector<int>>> cpus =
        bind_cpus(machine_.topology, machine_.gpu_nodes, *binding, spec_.nproc);
    if (!cpus.ok()) return cpus.status().within(quoted(*mode));
    const auto all = [&](const std::vector<int>& some) { return some.size() == machine_.topology.size(); };
    if (std::all_of(cpus.value().begin(), cpus.value().end(), all)) {
      notice_(quoted(*mode) + " has no effect: there is only one choice on this machine, all of its CPUs");
    }
    spec_.worker_cpus = cpus.value();
    return Status();
  }

  Status read_virtual_local_rank() {
    if (config_) {
      no_effect("virtual_local_rank", " on the built-in trainer");
      return Status();
    }
    spec_.virtual_local_rank = true;
    const char* visible = environment_("CUDA_VISIBLE_DEVICES");
    if (visible == nullptr) return Status();
    const std::string devices = visible;
    const auto count = devices.empty() ? 0 : std::count(devices.begin(), devices.end(), ',') + 1;
    if (count >= spec_.nproc) return Status();
    return usage("--virtual_local_rank: " + std::to_string(spec_.nproc) +
                 " workers need as many GPUs, but CUDA_VISIBLE_DEVICES=" + devices);
  }

  Status read_output() {
    return read_output_options([this](const std::string& name) { return given(name); }, environment_, notice_,
                               &spec_);
  }

  Status finish_program() {
    if (!config_) return Status();
    if (!options_.has("role")) spec_.role = "trainer";
    spec_.describe_difference = [mine = worker::to_canonical_json(*config_)](const std::string& theirs) {
      return worker::first_difference(mine, theirs);
    };
    spec_.program = BuiltinTrainer{machine_.worker_binary, worker::to_canonical_json(*config_),
                                   config_->output_dir, lanes_};
    return Status();
  }

  const Options& options_;
  const Machine& machine_;
  const Environment& environment_;
  const Notice& notice_;
  std::optional<worker::JobConfig> config_;
  int lanes_ = 1;
  JobSpec spec_;
};

}  // namespace

Result<JobSpec> make_job_spec(const Options& options, const Machine& machine, const Environment& environment,
                              const Notice& notice) {
  return Planner(options, machine, environment, notice).plan();
}

}  // namespace dtrun::cmd
