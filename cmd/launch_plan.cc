#include "cmd/launch_plan.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "cmd/output_options.h"
#include "cmd/values.h"
#include "proto/contract.h"
#include "proto/ids.h"
#include "proto/nearest.h"
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
  return parse_int(given, 1, "a number of workers (1 or more), auto, cpu or gpu");
}

// The run id becomes a directory name and part of store keys.
Status check_run_id(const Given& given) {
  const bool fine = !given.value.empty() && given.value.size() <= 128 && given.value[0] != '.' &&
                    std::all_of(given.value.begin(), given.value.end(), [](unsigned char c) {
                      return std::isalnum(c) || c == '-' || c == '_' || c == '.';
                    });
  return fine ? Status() : usage(quoted(given) + ": expected letters, digits, '.', '_' and '-', at most 128");
}

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
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

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
    for (auto part : {&Planner::read_program, &Planner::read_workers, &Planner::read_rendezvous,
                      &Planner::read_master_port, &Planner::read_policy, &Planner::read_cpus,
                      &Planner::read_output, &Planner::finish_program}) {
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
    const bool script = !options_.program_is_verbatim && program.argv[0].ends_with(".py");
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

  void no_effect(const std::string& name, const std::string& why) {
    if (options_.has(name)) notice_(options_.values.at(name).source + " has no effect" + why);
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
    lanes_ = std::max(1, machine_.cpus / spec_.nproc);
    if (const auto lanes = given("lanes"); lanes && lanes->value != "auto") {
      Result<int> count = parse_int(*lanes, 1, "a number of lanes (1 or more) or auto");
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

  Status read_rendezvous() {
    std::string backend = options_.has("rdzv_backend") ? options_.values.at("rdzv_backend").value : "dtrun";
    if (backend == "c10d") backend = "dtrun";
    const std::vector<std::string> backends{"dtrun", "c10d", "static", "env"};
    if (std::find(backends.begin(), backends.end(), backend) == backends.end()) {
      const bool etcd = options_.values.at("rdzv_backend").value.starts_with("etcd");
      return usage(quoted(options_.values.at("rdzv_backend")) + ": expected dtrun, c10d, static or env" +
                   (etcd ? " (dtrun brings its own coordinator, no etcd is needed)" : ""));
    }
    Status status = backend == "env" ? read_env_backend() : read_endpoint(backend == "static");
    if (!status.ok()) return status;
    if (options_.has("local_addr")) {
      spec_.rendezvous.local_address = options_.values.at("local_addr").value;
      if (spec_.rendezvous.standalone) no_effect("local_addr", " on a single node");
    }
    status = read_run_id();
    if (status.ok() && options_.has("rdzv_conf")) status = read_rdzv_conf(options_.values.at("rdzv_conf"));
    return status;
  }

  Status read_endpoint(bool is_static) {
    Result<std::optional<Endpoint>> endpoint = find_endpoint(is_static);
    if (!endpoint.ok()) return endpoint.status();
    if (options_.flag("standalone") || !endpoint.value()) return stand_alone();
    if (is_static && spec_.nodes.max > 1 && !spec_.node_rank) {
      return usage("--rdzv_backend static needs --node_rank on each node");
    }
    spec_.rendezvous.host = endpoint.value()->host;
    spec_.rendezvous.port = endpoint.value()->port;
    return Status();
  }

  // Where the nodes meet; nothing if one node needs no place to.
  Result<std::optional<Endpoint>> find_endpoint(bool is_static) {
    if (options_.has("rdzv_endpoint")) {
      const Given& given = options_.values.at("rdzv_endpoint");
      Result<Endpoint> endpoint = parse_endpoint(given, kDefaultPort);
      if (!endpoint.ok()) return endpoint.status();
      if (is_static || spec_.nodes.max == 1) {
        Status status = read_master_address();
        if (!status.ok()) return status;
      } else {
        no_effect("master_addr", ": MASTER_ADDR is the address of the node that gets rank 0");
      }
      if (endpoint.value().port != 0) return std::optional<Endpoint>(endpoint.value());
      if (spec_.nodes.max == 1) return std::optional<Endpoint>();  // torchrun's "localhost:0"
      return usage(quoted(given) + ": expected a port from 1 to 65535");
    }
    Status status = read_master_address();
    if (!status.ok()) return status;
    if (spec_.nodes.max == 1 || options_.flag("standalone")) return std::optional<Endpoint>();
    if (!options_.has("master_addr")) {
      return usage(
          "several nodes need --rdzv_endpoint HOST[:PORT], the same on each: the host where the coordinator "
          "runs");
    }
    return endpoint_beside_master();
  }

  // torchrun's static rendezvous names no other place. Rank 0's program listens on MASTER_PORT itself.
  Result<std::optional<Endpoint>> endpoint_beside_master() const {
    if (!spec_.node_rank)
      return usage("--master_addr without --rdzv_endpoint needs --node_rank on each node");
    Endpoint endpoint{spec_.rendezvous.master_address, kDefaultPort};
    if (options_.has("master_port")) {
      Result<int> port = parse_port(options_.values.at("master_port"));
      if (!port.ok()) return port.status();
      endpoint.port = port.value() == 65535 ? 65534 : port.value() + 1;
    }
    return std::optional<Endpoint>(endpoint);
  }

  Status stand_alone() {
    if (spec_.nodes.max != 1) return usage("--standalone is for one node, but --nnodes allows more");
    if (options_.flag("standalone")) no_effect("rdzv_endpoint", " with --standalone");
    spec_.rendezvous.standalone = true;
    spec_.rendezvous.host = "127.0.0.1";
    return Status();
  }

  // "[::1]" is how torchrun's help wants IPv6.
  Status read_master_address() {
    if (!options_.has("master_addr")) return Status();
    const std::string& text = options_.values.at("master_addr").value;
    const bool bracketed = text.starts_with("[") && text.ends_with("]");
    spec_.rendezvous.master_address = bracketed ? text.substr(1, text.size() - 2) : text;
    if (!spec_.rendezvous.master_address.empty()) return Status();
    return usage(quoted(options_.values.at("master_addr")) + ": expected an address");
  }

  Status read_master_port() {
    if (!options_.has("master_port")) return Status();
    if (backend_is_env()) {
      no_effect("master_port", " with --rdzv_backend env");
      return Status();
    }
    Result<int> port = parse_port(options_.values.at("master_port"));
    if (!port.ok()) return port.status();
    spec_.rendezvous.master_port = port.value();
    return Status();
  }

  bool backend_is_env() const {
    return options_.has("rdzv_backend") && options_.values.at("rdzv_backend").value == "env";
  }

  // One worker whose place in the world somebody exported by hand: every terminal is a node of its own.
  Status read_env_backend() {
    const auto number = [&](const char* name, int least) -> Result<int> {
      const char* value = environment_(name);
      if (value == nullptr) {
        return usage(std::string("--rdzv_backend env needs ") + name +
                     " in the environment (with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT)");
      }
      return parse_int({value, name}, least, "a whole number, " + std::to_string(least) + " or more");
    };
    Result<int> rank = number("RANK", 0), world = number("WORLD_SIZE", 1), port = number("MASTER_PORT", 1);
    for (const Result<int>* result : {&rank, &world, &port}) {
      if (!result->ok()) return result->status();
    }
    const char* address = environment_("MASTER_ADDR");
    if (address == nullptr || *address == '\0')
      return usage("--rdzv_backend env needs MASTER_ADDR in the environment");
    if (rank.value() >= world.value()) {
      return usage("RANK=" + std::to_string(rank.value()) + ": expected less than WORLD_SIZE, " +
                   std::to_string(world.value()));
    }
    if (port.value() > 65535)
      return usage("MASTER_PORT=" + std::to_string(port.value()) + ": expected at most 65535");
    for (const char* name : {"nnodes", "nproc_per_node", "node_rank", "rdzv_endpoint", "master_addr"}) {
      no_effect(name, " with --rdzv_backend env");
    }
    spec_.nodes = {world.value(), world.value()};
    spec_.nproc = 1;
    spec_.node_rank = rank.value();
    spec_.rendezvous.host = address;
    spec_.rendezvous.port = port.value();
    if (!options_.has("lanes")) lanes_ = 1;
    return Status();
  }

  Status read_run_id() {
    if (!options_.has("rdzv_id")) {
      spec_.run_id = spec_.rendezvous.standalone ? random_id(4) : "none";
      return Status();
    }
    spec_.run_id = options_.values.at("rdzv_id").value;
    return check_run_id(options_.values.at("rdzv_id"));
  }

  Status read_rdzv_conf(const Given& conf) {
    const std::vector<std::string> known{
        "join_timeout",  "timeout",      "last_call_timeout", "keep_alive_interval", "keep_alive_max_attempt",
        "close_timeout", "read_timeout", "is_host",           "store_type",          "use_libuv"};
    milliseconds interval{5000};
    double attempts = 3;
    std::istringstream entries(conf.value);
    for (std::string entry; std::getline(entries, entry, ',');) {
      const std::size_t equals = entry.find('=');
      const std::string key = entry.substr(0, equals);
      if (equals == std::string::npos || key.empty()) {
        return usage(quoted(conf) + ": expected KEY=SECONDS,…");
      }
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        const std::string nearest = nearest_name(key, known);
        return usage(conf.source + ": unknown key " + key +
                     (nearest.empty() ? "" : ", did you mean " + nearest + "?"));
      }
      if (key == "is_host" || key == "store_type" || key == "use_libuv") {
        notice_(conf.source + " " + key + " has no effect: dtrun has no c10d store");
        continue;
      }
      const Given value{entry.substr(equals + 1), conf.source + " " + key};
      Result<milliseconds> seconds = parse_seconds(value);
      if (!seconds.ok()) return seconds.status();
      if (key == "join_timeout" || key == "timeout") spec_.rendezvous.join_timeout = seconds.value();
      if (key == "last_call_timeout") spec_.rendezvous.last_call = seconds.value();
      if (key == "keep_alive_interval") interval = seconds.value();
      if (key == "keep_alive_max_attempt") attempts = static_cast<double>(seconds.value().count()) / 1000;
      if (key == "close_timeout" || key == "read_timeout") {
        notice_(conf.source + " " + key +
                " has no effect: dtrun waits on connections, it does not poll a store");
      }
    }
    spec_.rendezvous.heartbeat_timeout =
        milliseconds(std::llround(static_cast<double>(interval.count()) * attempts));
    if (spec_.rendezvous.heartbeat_timeout < milliseconds(100)) {
      return usage(conf.source +
                   ": keep_alive_interval * keep_alive_max_attempt must be at least 0.1 seconds");
    }
    return Status();
  }

  Status read_policy() {
    if (const auto restarts = given("max_restarts")) {
      Result<int> count = parse_int(*restarts, 0, "a number of restarts, 0 or more");
      if (!count.ok()) return count.status();
      spec_.max_restarts = count.value();
    }
    if (const auto grace = shutdown_timeout()) {
      Result<milliseconds> seconds = parse_seconds(*grace);
      if (!seconds.ok()) return seconds.status();
      spec_.shutdown_timeout = seconds.value();
    }
    if (const auto names = given("signals_to_handle")) {
      Result<std::vector<int>> signals = parse_signals(*names);
      if (!signals.ok()) return signals.status();
      spec_.signals_to_handle = signals.value();
    }
    if (const auto role = given("role")) spec_.role = role->value;
    return read_accepted();
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

std::string describe_plan(const JobSpec& spec) {
  using Json = nlohmann::ordered_json;
  const auto seconds = [](milliseconds value) { return static_cast<double>(value.count()) / 1000; };
  const RendezvousSpec& rendezvous = spec.rendezvous;
  Json plan;
  plan["run_id"] = spec.run_id;
  plan["nnodes"] = {{"min", spec.nodes.min}, {"max", spec.nodes.max}};
  plan["nproc_per_node"] = spec.nproc;
  plan["node_rank"] = spec.node_rank ? Json(*spec.node_rank) : Json(nullptr);
  plan["role"] = spec.role;
  plan["rendezvous"] = {
      {"standalone", rendezvous.standalone},
      {"host", rendezvous.host},
      {"port", rendezvous.standalone ? Json(nullptr) : Json(rendezvous.port)},
      {"master_addr", rendezvous.master_address.empty() ? Json(nullptr) : Json(rendezvous.master_address)},
      {"master_port", rendezvous.master_port == 0 ? Json(nullptr) : Json(rendezvous.master_port)},
      {"local_addr", rendezvous.local_address.empty() ? Json(nullptr) : Json(rendezvous.local_address)},
      {"join_timeout", seconds(rendezvous.join_timeout)},
      {"last_call_timeout", seconds(rendezvous.last_call)},
      {"heartbeat_timeout", seconds(rendezvous.heartbeat_timeout)}};
  plan["max_restarts"] = spec.max_restarts;
  plan["shutdown_timeout"] = seconds(spec.shutdown_timeout);
  plan["log_dir"] = spec.log_dir.empty() ? Json(nullptr) : Json(spec.log_dir.string());
  plan["log_prefix"] = spec.output.prefix;
  if (!spec.worker_cpus.empty()) plan["worker_cpus"] = spec.worker_cpus;
  if (const auto* trainer = std::get_if<BuiltinTrainer>(&spec.program)) {
    plan["program"] = {trainer->worker_binary.string()};
    plan["lanes"] = trainer->lanes;
    plan["config"] = Json::parse(trainer->config_json);
  } else {
    plan["program"] = std::get<ExternalProgram>(spec.program).argv;
  }
  return plan.dump(2) + "\n";
}

}  // namespace dtrun::cmd
