#include "cmd/launch_plan.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "proto/contract.h"
#include "proto/ids.h"
#include "proto/nearest.h"
#include "worker/config/config.h"
#include "worker/data/dataset.h"

namespace dtrun::cmd {
namespace {

using std::chrono::milliseconds;

Status usage(const std::string& message) { return Status(kExitUsage, message); }

std::string quoted(const Given& given) { return given.source + "=" + given.value; }

Result<int> parse_int(const Given& given, int least, const std::string& allowed) {
  int value = 0;
  const char* end = given.value.data() + given.value.size();
  const auto [stop, error] = std::from_chars(given.value.data(), end, value);
  if (error != std::errc() || stop != end || value < least) {
    return usage(quoted(given) + ": expected " + allowed);
  }
  return value;
}

Result<milliseconds> parse_seconds(const Given& given) {
  std::istringstream text(given.value);
  double seconds = 0;
  if (!(text >> seconds) || !text.eof() || !std::isfinite(seconds) || seconds < 0 || seconds > 1e7) {
    return usage(quoted(given) + ": expected a number of seconds, 0 or more");
  }
  return milliseconds(std::llround(seconds * 1000));
}

Result<NodeCount> parse_nodes(const Given& given) {
  const std::size_t colon = given.value.find(':');
  const std::string allowed = "N or MIN:MAX, with 1 <= MIN <= MAX";
  Result<int> least = parse_int({given.value.substr(0, colon), given.source}, 1, allowed);
  if (!least.ok()) return usage(quoted(given) + ": expected " + allowed);
  if (colon == std::string::npos) return NodeCount{least.value(), least.value()};
  Result<int> most = parse_int({given.value.substr(colon + 1), given.source}, least.value(), allowed);
  if (!most.ok()) return usage(quoted(given) + ": expected " + allowed);
  return NodeCount{least.value(), most.value()};
}

Result<int> parse_nproc(const Given& given, const Machine& machine) {
  if (given.value == "cpu") return machine.cpus;
  if (given.value == "auto") return machine.gpus > 0 ? machine.gpus : machine.cpus;
  if (given.value == "gpu") {
    if (machine.gpus > 0) return machine.gpus;
    return usage(quoted(given) + ": no GPU that dtrun can use on this machine; use cpu, auto or a number");
  }
  return parse_int(given, 1, "a number of workers (1 or more), auto, cpu or gpu");
}

struct Endpoint {
  std::string host;
  int port = kDefaultPort;
};

// HOST, HOST:PORT, [IPV6], [IPV6]:PORT; a bare IPv6 address has two colons or more.
Result<Endpoint> parse_endpoint(const Given& given) {
  const std::string& text = given.value;
  Endpoint endpoint;
  std::string port;
  if (!text.empty() && text[0] == '[') {
    const std::size_t close = text.find(']');
    if (close == std::string::npos) return usage(quoted(given) + ": the bracket is not closed");
    endpoint.host = text.substr(1, close - 1);
    if (close + 1 < text.size()) {
      if (text[close + 1] != ':') return usage(quoted(given) + ": expected [ADDRESS]:PORT");
      port = text.substr(close + 2);
      if (port.empty()) return usage(quoted(given) + ": the port is missing after ':'");
    }
  } else if (std::count(text.begin(), text.end(), ':') == 1) {
    endpoint.host = text.substr(0, text.find(':'));
    port = text.substr(text.find(':') + 1);
    if (port.empty()) return usage(quoted(given) + ": the port is missing after ':'");
  } else {
    endpoint.host = text;
  }
  if (endpoint.host.empty()) return usage(quoted(given) + ": expected HOST[:PORT]");
  if (!port.empty()) {
    Result<int> number = parse_int({port, given.source}, 1, "");
    if (!number.ok() || number.value() > 65535)
      return usage(quoted(given) + ": expected a port from 1 to 65535");
    endpoint.port = number.value();
  }
  return endpoint;
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

// Fills a JobSpec step by step; the first failure is kept and ends the filling.
class Planner {
 public:
  Planner(const Options& options, const Machine& machine, const Environment& environment,
          const std::function<void(const std::string&)>& notice)
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
                      &Planner::read_policy, &Planner::finish_program}) {
      Status status = (this->*part)();
      if (!status.ok()) return status;
    }
    return Status();
  }

  bool is_config() const {
    return !options_.program_is_verbatim && !options_.flag("no_python") && !options_.flag("module") &&
           options_.program[0].ends_with(".json");
  }

  Status read_program() {
    if (is_config()) return read_config();
    ExternalProgram program{options_.program};
    const bool module = options_.flag("module");
    if (module && options_.flag("no_python")) return usage("--module and --no_python exclude each other");
    const bool script = !options_.program_is_verbatim && program.argv[0].ends_with(".py");
    if (module || (script && !options_.flag("no_python"))) {
      const char* python = environment_("PYTHON_EXEC");
      std::vector<std::string> prefix{python && *python ? python : "python3", "-u"};
      if (module) prefix.push_back("-m");
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

  Status read_workers() {
    if (const auto nodes = given("nnodes")) {
      Result<NodeCount> count = parse_nodes(*nodes);
      if (!count.ok()) return count.status();
      spec_.nodes = count.value();
    }
    if (const auto nproc = given("nproc_per_node")) {
      Result<int> count = parse_nproc(*nproc, machine_);
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
    return Status();
  }

  Status read_rendezvous() {
    std::string backend = options_.has("rdzv_backend") ? options_.values.at("rdzv_backend").value : "dtrun";
    if (backend == "c10d") backend = "dtrun";
    const std::vector<std::string> backends{"dtrun", "c10d", "static", "env"};
    if (std::find(backends.begin(), backends.end(), backend) == backends.end()) {
      return usage(quoted(options_.values.at("rdzv_backend")) + ": expected dtrun, c10d, static or env");
    }
    Status status = backend == "env" ? read_env_backend() : read_endpoint(backend == "static");
    if (!status.ok()) return status;
    if (options_.has("local_addr")) {
      spec_.rendezvous.local_address = options_.values.at("local_addr").value;
      if (spec_.rendezvous.standalone) notice_("--local_addr has no effect on a single node");
    }
    status = read_run_id();
    if (status.ok() && options_.has("rdzv_conf")) status = read_rdzv_conf(options_.values.at("rdzv_conf"));
    return status;
  }

  Status read_endpoint(bool is_static) {
    RendezvousSpec& rendezvous = spec_.rendezvous;
    const bool endpoint_given = options_.has("rdzv_endpoint");
    if (options_.flag("standalone") || (!endpoint_given && spec_.nodes.max == 1)) {
      if (spec_.nodes.max != 1) return usage("--standalone is for one node, but --nnodes allows more");
      if (endpoint_given) notice_("--rdzv_endpoint has no effect with --standalone");
      rendezvous.standalone = true;
      rendezvous.host = "127.0.0.1";
      return Status();
    }
    if (!endpoint_given) {
      return usage(
          "several nodes need --rdzv_endpoint HOST[:PORT], the same on each: the host where the coordinator "
          "runs");
    }
    if (is_static && spec_.nodes.max > 1 && !spec_.node_rank) {
      return usage("--rdzv_backend static needs --node_rank on each node");
    }
    Result<Endpoint> endpoint = parse_endpoint(options_.values.at("rdzv_endpoint"));
    if (!endpoint.ok()) return endpoint.status();
    rendezvous.host = endpoint.value().host;
    rendezvous.port = endpoint.value().port;
    return Status();
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
    for (const char* name : {"nnodes", "nproc_per_node", "node_rank", "rdzv_endpoint"}) {
      if (options_.has(name))
        notice_(options_.values.at(name).source + " has no effect with --rdzv_backend env");
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
      spec_.run_id = spec_.rendezvous.standalone ? random_id(4) : "default";
      return Status();
    }
    spec_.run_id = options_.values.at("rdzv_id").value;
    return check_run_id(options_.values.at("rdzv_id"));
  }

  Status read_rdzv_conf(const Given& conf) {
    const std::vector<std::string> known{
        "join_timeout",           "timeout",       "last_call_timeout", "keep_alive_interval",
        "keep_alive_max_attempt", "close_timeout", "read_timeout"};
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
    if (const auto grace = given("shutdown_timeout")) {
      Result<milliseconds> seconds = parse_seconds(*grace);
      if (!seconds.ok()) return seconds.status();
      spec_.shutdown_timeout = seconds.value();
    }
    if (const auto directory = given("log_dir")) spec_.log_dir = directory->value;
    if (const auto role = given("role")) spec_.role = role->value;
    return Status();
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
  const std::function<void(const std::string&)>& notice_;
  std::optional<worker::JobConfig> config_;
  int lanes_ = 1;
  JobSpec spec_;
};

}  // namespace

Result<JobSpec> make_job_spec(const Options& options, const Machine& machine, const Environment& environment,
                              const std::function<void(const std::string&)>& notice) {
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
      {"local_addr", rendezvous.local_address.empty() ? Json(nullptr) : Json(rendezvous.local_address)},
      {"join_timeout", seconds(rendezvous.join_timeout)},
      {"last_call_timeout", seconds(rendezvous.last_call)},
      {"heartbeat_timeout", seconds(rendezvous.heartbeat_timeout)}};
  plan["max_restarts"] = spec.max_restarts;
  plan["shutdown_timeout"] = seconds(spec.shutdown_timeout);
  plan["log_dir"] = spec.log_dir.empty() ? Json(nullptr) : Json(spec.log_dir.string());
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
