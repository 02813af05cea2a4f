#include "cmd/plan/rendezvous_options.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <sstream>

#include "cmd/options/values.h"
#include "proto/base/ids.h"
#include "proto/core/contract.h"
#include "proto/core/nearest.h"

namespace dtrun::cmd {
namespace {

using std::chrono::milliseconds;

// torchrun's keys of --rdzv_conf.
constexpr const char* kTimeoutKeys[] = {
    "join_timeout",           "timeout",       "last_call_timeout", "keep_alive_interval",
    "keep_alive_max_attempt", "close_timeout", "read_timeout"};
constexpr const char* kStoreKeys[] = {"store_type", "use_libuv"};

// The run id becomes a directory name and part of store keys.
Status check_run_id(const Given& given) {
  const bool fine = !given.value.empty() && given.value.size() <= 128 && given.value[0] != '.' &&
                    std::all_of(given.value.begin(), given.value.end(), [](unsigned char c) {
                      return std::isalnum(c) || c == '-' || c == '_' || c == '.';
                    });
  return fine ? Status() : usage(quoted(given) + ": expected letters, digits, '.', '_' and '-', at most 128");
}

// Where the agents meet if all that is known is the port on which rank 0's program will listen.
int port_beside(int master_port) { return master_port == 65535 ? 65534 : master_port + 1; }

class RendezvousReader {
 public:
  RendezvousReader(const Options& options, const Environment& environment, const Notice& notice,
                   JobSpec* spec)
      : options_(options), environment_(environment), notice_(notice), spec_(*spec) {}

  Status read() {
    const std::string backend = backend_name();
    const std::set<std::string> backends{"dtrun", "c10d", "static", "env"};
    if (!backends.count(backend)) {
      return usage(
          quoted(options_.values.at("rdzv_backend")) + ": expected dtrun, c10d, static or env" +
          (backend.starts_with("etcd") ? " (dtrun brings its own coordinator, no etcd is needed)" : ""));
    }
    Status status = backend == "env" ? read_env_backend() : read_endpoint(backend == "static");
    if (!status.ok()) return status;
    for (auto part : {&RendezvousReader::read_local_address, &RendezvousReader::read_master_port,
                      &RendezvousReader::read_run_id, &RendezvousReader::read_conf}) {
      status = (this->*part)();
      if (!status.ok()) return status;
    }
    return Status();
  }

 private:
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
    // Empty is torchrun's default: scripts give --rdzv_endpoint="$ENDPOINT" on one node, too.
    const bool given = options_.has("rdzv_endpoint") && !options_.values.at("rdzv_endpoint").value.empty();
    const bool one_node = spec_.nodes.max == 1;
    if (given && !is_static && !one_node) {
      no_effect("master_addr", ": MASTER_ADDR is the address of the node that gets rank 0");
    } else if (Status status = read_master_address(); !status.ok()) {
      return status;
    }
    if (given) return given_endpoint(options_.values.at("rdzv_endpoint"));
    if (one_node || options_.flag("standalone")) return std::optional<Endpoint>();
    if (options_.has("master_addr")) return endpoint_beside_master();
    return usage(
        "several nodes need --rdzv_endpoint HOST[:PORT], the same on each: the host where the coordinator "
        "runs");
  }

  Result<std::optional<Endpoint>> given_endpoint(const Given& given) const {
    Result<Endpoint> endpoint = parse_endpoint(given, kDefaultPort);
    if (!endpoint.ok()) return endpoint.status();
    if (endpoint.value().port != 0) return std::optional<Endpoint>(endpoint.value());
    if (spec_.nodes.max == 1) return std::optional<Endpoint>();  // torchrun's "localhost:0"
    return usage(quoted(given) + ": expected a port from 1 to 65535");
  }

  // torchrun's static rendezvous names no other place. Rank 0's program listens on MASTER_PORT itself.
  Result<std::optional<Endpoint>> endpoint_beside_master() const {
    if (!spec_.node_rank)
      return usage("--master_addr without --rdzv_endpoint needs --node_rank on each node");
    Endpoint endpoint{spec_.rendezvous.master_address, kDefaultPort};
    if (options_.has("master_port")) {
      Result<int> port = parse_port(options_.values.at("master_port"));
      if (!port.ok()) return port.status();
      endpoint.port = port_beside(port.value());
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
    if (may_be_host(spec_.rendezvous.master_address)) return Status();
    return usage(quoted(options_.values.at("master_addr")) + ": expected a host's name or address");
  }

  // Empty is torchrun's default.
  Status read_local_address() {
    if (!options_.has("local_addr") || options_.values.at("local_addr").value.empty()) return Status();
    spec_.rendezvous.local_address = options_.values.at("local_addr").value;
    if (spec_.rendezvous.standalone) no_effect("local_addr", " on a single node");
    if (may_be_host(spec_.rendezvous.local_address)) return Status();
    return usage(quoted(options_.values.at("local_addr")) + ": expected a host's name or address");
  }

  Status read_master_port() {
    if (!options_.has("master_port")) return Status();
    if (backend_name() == "env") {
      no_effect("master_port", " with --rdzv_backend env");
      return Status();
    }
    Result<int> port = parse_port(options_.values.at("master_port"));
    if (!port.ok()) return port.status();
    spec_.rendezvous.master_port = port.value();
    return Status();
  }

  std::string backend_name() const {
    return options_.has("rdzv_backend") ? options_.values.at("rdzv_backend").value : "dtrun";
  }

  // A whole number from the environment.
  Result<int> number(const char* name, int least) const {
    const char* value = environment_(name);
    if (value != nullptr) {
      return parse_int({value, name}, least, "a whole number, " + std::to_string(least) + " or more");
    }
    return usage(std::string("--rdzv_backend env needs ") + name +
                 " in the environment (with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT)");
  }

  // One worker whose place in the world somebody exported by hand: every terminal is a node of its own.
  Status read_env_backend() {
    Result<int> rank = number("RANK", 0), world = number("WORLD_SIZE", 1), port = number("MASTER_PORT", 1);
    for (const Result<int>* result : {&rank, &world, &port}) {
      if (!result->ok()) return result->status();
    }
    const char* address = environment_("MASTER_ADDR");
    if (address == nullptr || *address == '\0') {
      return usage("--rdzv_backend env needs MASTER_ADDR in the environment");
    }
    if (rank.value() >= world.value()) {
      return usage("RANK=" + std::to_string(rank.value()) + ": expected less than WORLD_SIZE, " +
                   std::to_string(world.value()));
    }
    if (port.value() > 65535) {
      return usage("MASTER_PORT=" + std::to_string(port.value()) + ": expected at most 65535");
    }
    for (const char* name : {"nnodes", "nproc_per_node", "node_rank", "rdzv_endpoint", "master_addr"}) {
      no_effect(name, " with --rdzv_backend env");
    }
    spec_.nodes = {world.value(), world.value()};
    spec_.nproc = 1;
    spec_.node_rank = rank.value();
    // What was exported is what the programs find; the agents meet beside it.
    spec_.rendezvous.master_address = address;
    spec_.rendezvous.master_port = port.value();
    if (world.value() == 1) return stand_alone();
    spec_.rendezvous.host = address;
    spec_.rendezvous.port = port_beside(port.value());
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

  Status read_conf() {
    if (!options_.has("rdzv_conf")) return Status();
    const Given& conf = options_.values.at("rdzv_conf");
    Timeouts timeouts;
    std::istringstream entries(conf.value);
    for (std::string entry; std::getline(entries, entry, ',');) {
      Status status = read_conf_entry(conf, entry, &timeouts);
      if (!status.ok()) return status;
    }
    const double keep_alive = static_cast<double>(timeouts.interval.count()) * timeouts.attempts;
    spec_.rendezvous.keep_alive_timeout = milliseconds(std::llround(keep_alive));
    if (spec_.rendezvous.standalone) no_effect("rdzv_conf", " on a single node");
    if (spec_.rendezvous.keep_alive_timeout >= milliseconds(100)) return Status();
    return usage(conf.source + ": keep_alive_interval * keep_alive_max_attempt must be at least 0.1 seconds");
  }

  struct Timeouts {
    milliseconds interval{5000};
    double attempts = 3;
  };

  Status read_is_host(const Given& given) {
    static const std::set<std::string> yes = {"1", "true", "t", "yes", "y"},
                                       no = {"0", "false", "f", "no", "n"};
    if (!yes.contains(given.value) && !no.contains(given.value))
      return usage(quoted(given) + ": expected 1 or 0");
    spec_.rendezvous.is_host = yes.contains(given.value);
    return Status();
  }

  Status read_conf_entry(const Given& conf, const std::string& entry, Timeouts* timeouts) {
    const std::size_t equals = entry.find('=');
    const std::string key = trimmed(entry.substr(0, equals));
    if (equals == std::string::npos || key.empty()) return usage(quoted(conf) + ": expected KEY=SECONDS,…");
    if (key == "is_host") return read_is_host({trimmed(entry.substr(equals + 1)), conf.source + " is_host"});
    if (std::find(std::begin(kStoreKeys), std::end(kStoreKeys), key) != std::end(kStoreKeys)) {
      notice_(conf.source + " " + key + " has no effect: dtrun has no c10d store");
      return Status();
    }
    if (std::find(std::begin(kTimeoutKeys), std::end(kTimeoutKeys), key) == std::end(kTimeoutKeys)) {
      const std::vector<std::string> known(std::begin(kTimeoutKeys), std::end(kTimeoutKeys));
      const std::string nearest = nearest_name(key, known);
      return usage(conf.source + ": unknown key " + key +
                   (nearest.empty() ? "" : ", did you mean " + nearest + "?"));
    }
    Result<milliseconds> seconds =
        parse_seconds({trimmed(entry.substr(equals + 1)), conf.source + " " + key});
    if (!seconds.ok()) return seconds.status();
    if (key == "join_timeout" || key == "timeout") spec_.rendezvous.join_timeout = seconds.value();
    if (key == "last_call_timeout") spec_.rendezvous.last_call = seconds.value();
    if (key == "keep_alive_interval") timeouts->interval = seconds.value();
    if (key == "keep_alive_max_attempt") {
      timeouts->attempts = static_cast<double>(seconds.value().count()) / 1000;
    }
    if (key == "close_timeout")
      notice_(conf.source +
              " close_timeout has no effect: dtrun waits on connections, it does not poll a store");
    if (key == "read_timeout") spec_.rendezvous.read_timeout = seconds.value();
    const bool may_be_short = key != "read_timeout" && key != "join_timeout" && key != "timeout";
    if (may_be_short || seconds.value() >= milliseconds(100)) return Status();
    return usage(conf.source + ": " + key + " must be at least 0.1 seconds");
  }

  void no_effect(const std::string& name, const std::string& why) const {
    say_no_effect(options_, name, why, notice_);
  }

  const Options& options_;
  const Environment& environment_;
  const Notice& notice_;
  JobSpec& spec_;
};

}  // namespace

Status read_rendezvous_options(const Options& options, const Environment& environment, const Notice& notice,
                               JobSpec* spec) {
  return RendezvousReader(options, environment, notice, spec).read();
}

}  // namespace dtrun::cmd
