// The order of the parts in read_rendezvous_options() matters: the backend finds the endpoint, to which the
// key belongs.
#include "cmd/plan/rendezvous_options.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "cmd/plan/cluster_place.h"
#include "cmd/plan/key_options.h"
#include "cmd/plan/make_job_spec.h"
#include "proto/base/ids.h"
#include "proto/core/contract.h"
#include "proto/core/nearest.h"
#include "proto/core/text.h"

namespace dtrun::cmd {
namespace {

using std::chrono::milliseconds;

// The port on which the agents meet if only the port of rank 0's program is known.
int port_beside(int master_port) { return master_port == 65535 ? 65534 : master_port + 1; }

std::optional<Endpoint> no_place() { return std::nullopt; }

bool stands_alone(const Draft& draft) { return draft.meeting.hosts.empty(); }

Result<std::optional<Endpoint>> given_endpoint(Draft& draft, const Given& given) {
  ASSIGN_OR_RETURN(std::vector<Endpoint> endpoints, parse_endpoints(given, kDefaultPort));
  const std::vector<Endpoint>& all = endpoints;
  // A scope is an interface of one host, and without it such an address leads nowhere.
  for (const Endpoint& one : all)
    if (one.host.starts_with("fe80:") && draft.spec.nodes.max > 1)
      return usage(quoted(given) + ": " + one.host +
                   " is an address of a single link, which other nodes cannot use; give a name or another "
                   "address of that host");
  if (all.front().port != 0) {
    for (const Endpoint& one : all) draft.meeting.hosts.push_back(one.host);
    return std::optional<Endpoint>(all.front());
  }
  if (draft.spec.nodes.max == 1) return no_place();  // torchrun's "localhost:0"
  return usage(quoted(given) + ": expected a port from 1 to 65535");
}

// torchrun's static rendezvous gives no endpoint but MASTER_ADDR and MASTER_PORT, and rank 0's program
// listens on that port itself. So the agents meet on a port beside it.
Result<std::optional<Endpoint>> endpoint_beside_master(const Draft& draft) {
  if (!draft.spec.node_rank)
    return usage("--master_addr without --rdzv_endpoint needs --node_rank on each node");
  Endpoint endpoint{.host = draft.spec.rendezvous.master_address, .port = kDefaultPort};
  if (const auto master_port = draft.options.given("master_port")) {
    ASSIGN_OR_RETURN(int port, parse_port(*master_port));
    endpoint.port = port_beside(port);
  }
  return std::optional<Endpoint>(endpoint);
}

Result<std::string> parse_host(const Given& given) {
  // "[::1]" is how torchrun's help wants IPv6.
  const bool bracketed = given.value.starts_with("[") && given.value.ends_with("]");
  const std::string host = bracketed ? given.value.substr(1, given.value.size() - 2) : given.value;
  if (may_be_host(host)) return host;
  return usage(quoted(given) + ": expected a host's name or address");
}

// The endpoint at which the nodes meet; nothing for one node, which needs none.
Result<std::optional<Endpoint>> find_endpoint(Draft& draft, bool is_static) {
  // Empty is torchrun's default: scripts give --rdzv_endpoint="$ENDPOINT" on one node, too.
  const auto endpoint = draft.options.given("rdzv_endpoint");
  const bool given = endpoint && !endpoint->value.empty();
  const bool one_node = draft.spec.nodes.max == 1;
  if (given && !is_static && !one_node) {
    draft.no_effect("master_addr", ": MASTER_ADDR is the address of the node that gets rank 0");
  } else {
    RETURN_IF_ERROR(draft.read("master_addr", &draft.spec.rendezvous.master_address, parse_host));
  }
  if (given) draft.spec.rendezvous.endpoint_from = endpoint->source;
  if (given) return given_endpoint(draft, *endpoint);
  if (one_node || draft.options.flag("standalone")) return no_place();
  if (draft.options.has("master_addr")) return endpoint_beside_master(draft);
  if (draft.place) draft.spec.rendezvous.endpoint_from = draft.place->job;
  if (draft.place) return endpoint_of_place(draft);
  return usage(
      "several nodes need --rdzv_endpoint HOST[:PORT], the same on each: the host where the coordinator "
      "runs");
}

// Where no list of hosts is known already.
void meet_at(const Endpoint& endpoint, Draft& draft) {
  if (draft.meeting.hosts.empty()) draft.meeting.hosts = {endpoint.host};
  if (draft.meeting.ports.empty()) draft.meeting.ports = {endpoint.port};
}

Status stand_alone(Draft& draft) {
  if (draft.spec.nodes.max != 1) return usage("--standalone is for one node, but --nnodes allows more");
  if (draft.options.flag("standalone")) draft.no_effect("rdzv_endpoint", " with --standalone");
  draft.meeting.hosts.clear();
  return {};
}

Status read_endpoint(Draft& draft, bool is_static) {
  ASSIGN_OR_RETURN(std::optional<Endpoint> endpoint, find_endpoint(draft, is_static));
  if (draft.options.flag("standalone") || !endpoint) return stand_alone(draft);
  if (is_static && draft.spec.nodes.max > 1 && !draft.spec.node_rank) {
    return usage("--rdzv_backend static needs --node_rank on each node");
  }
  meet_at(*endpoint, draft);
  return {};
}

// A whole number from the environment.
Result<int> number_from(const Environment& environment, const char* name, int least) {
  const char* value = environment(name);
  if (value != nullptr) {
    return parse_int({value, name}, least, "a whole number, " + std::to_string(least) + " or more");
  }
  return usage(std::string("--rdzv_backend env needs ") + name +
               " in the environment (with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT)");
}

// A worker's place in variables that a user exported by hand.
struct ExportedPlace {
  int rank = 0, world_size = 1;
  std::string master_address;
  int master_port = 0;
};

Result<ExportedPlace> exported_place(const Environment& environment) {
  ExportedPlace place;
  const struct {
    const char* name;
    int least;
    int* field;
  } numbers[] = {
      {"RANK", 0, &place.rank}, {"WORLD_SIZE", 1, &place.world_size}, {"MASTER_PORT", 1, &place.master_port}};
  for (const auto& [name, least, field] : numbers) {
    ASSIGN_OR_RETURN(int number, number_from(environment, name, least));
    *field = number;
  }
  const char* address = environment("MASTER_ADDR");
  if (address == nullptr || *address == '\0') {
    return usage("--rdzv_backend env needs MASTER_ADDR in the environment");
  }
  if (place.rank >= place.world_size) {
    return usage("RANK=" + std::to_string(place.rank) + ": expected less than WORLD_SIZE, " +
                 std::to_string(place.world_size));
  }
  if (place.master_port > 65535) {
    return usage("MASTER_PORT=" + std::to_string(place.master_port) + ": expected at most 65535");
  }
  place.master_address = address;
  return place;
}

// One worker whose place a user exported by hand: each terminal counts as a node of its own.
Status read_env_backend(Draft& draft) {
  ASSIGN_OR_RETURN(const ExportedPlace exported, exported_place(draft.environment));
  const ExportedPlace& place = exported;
  for (const OptionName name : std::initializer_list<OptionName>{"nnodes", "nproc_per_node", "node_rank",
                                                                 "rdzv_endpoint", "master_addr"}) {
    draft.no_effect(name, " with --rdzv_backend env");
  }
  draft.spec.nodes = {.min = place.world_size, .max = place.world_size};
  draft.spec.nproc = 1;
  draft.spec.node_rank = place.rank;
  // Programs find the exported variables; the agents meet on the port beside theirs.
  RendezvousSpec& rendezvous = draft.spec.rendezvous;
  rendezvous.master_address = place.master_address;
  rendezvous.master_port = place.master_port;
  if (place.world_size == 1) return stand_alone(draft);
  meet_at({.host = place.master_address, .port = port_beside(place.master_port)}, draft);
  return {};
}

Status read_backend(Draft& draft) {
  const std::string backend = rendezvous_backend(draft.options);
  const std::set<std::string> backends{"dtrun", "c10d", "static", "env"};
  if (!backends.count(backend)) {
    return usage(
        quoted(*draft.options.given("rdzv_backend")) + ": expected dtrun, c10d, static or env" +
        (backend.starts_with("etcd") ? " (dtrun brings its own coordinator, no etcd is needed)" : ""));
  }
  return backend == "env" ? read_env_backend(draft) : read_endpoint(draft, backend == "static");
}

// Empty is torchrun's default.
Status read_local_address(Draft& draft) {
  const auto address = draft.options.given("local_addr");
  if (!address || address->value.empty()) return {};
  draft.spec.rendezvous.local_address = address->value;
  if (stands_alone(draft)) draft.no_effect("local_addr", " on a single node");
  if (may_be_host(address->value)) return {};
  return usage(quoted(*address) + ": expected a host's name or address");
}

// Scripts and Kubeflow's PyTorchJob give the endpoint's port and MASTER_PORT one value: torchrun's agents
// share their store with the program. Here the coordinator listens on the endpoint, and rank 0's program on
// MASTER_PORT.
void part_from_endpoint(Draft& draft) {
  int& port = draft.spec.rendezvous.master_port;
  const std::vector<int>& taken = draft.meeting.ports;
  const int wanted = port;
  for (std::size_t i = 0; i < taken.size() && std::ranges::count(taken, port) > 0; ++i)
    port = port_beside(port);
  if (port != wanted)
    draft.notice("MASTER_PORT is " + std::to_string(port) + " for the workers: the nodes meet on port " +
                 std::to_string(wanted));
}

Status read_master_port(Draft& draft) {
  if (rendezvous_backend(draft.options) != "env") {
    RETURN_IF_ERROR(draft.read("master_port", &draft.spec.rendezvous.master_port, parse_port));
    if (draft.spec.rendezvous.master_port != 0) part_from_endpoint(draft);
    return {};
  }
  draft.no_effect("master_port", " with --rdzv_backend env");
  return {};
}

// Behind read_key.
Status read_page(Draft& draft) {
  PageSpec& page = draft.spec.rendezvous.page;
  page.in_pod = draft.environment("KUBERNETES_SERVICE_HOST") != nullptr;
  RETURN_IF_ERROR(draft.read("http_port", &page.port, parse_page_port));
  RETURN_IF_ERROR(draft.read("http_bind", &page.address, parse_numeric_address));
  return check_page(draft.options.given("http_bind"),
                    draft.spec.rendezvous.key != nullptr || stands_alone(draft));
}

Status read_run_id(Draft& draft) {
  const auto id = draft.options.given("rdzv_id");
  draft.spec.run_id = id ? id->value : stands_alone(draft) ? random_id(4) : "none";
  return id ? check_run_id(*id) : Status();
}

struct KeepAlive {
  milliseconds interval{5000};
  double attempts = 3;
};

// torchrun's keys of --rdzv_conf that are times, in seconds.
struct TimeKey {
  const char* name;
  void (*set)(milliseconds time, RendezvousSpec& rendezvous, KeepAlive& keep_alive);
  const char* why_no_effect = "";
  bool may_be_short = true;  // less than 0.1 s
};

void set_join_timeout(milliseconds time, RendezvousSpec& rendezvous, KeepAlive&) {
  rendezvous.join_timeout = time;
}

constexpr TimeKey kTimeKeys[] = {
    {.name = "join_timeout", .set = set_join_timeout, .may_be_short = false},
    {.name = "timeout", .set = set_join_timeout, .may_be_short = false},  // an older name of join_timeout
    {.name = "last_call_timeout",
     .set = [](milliseconds time, RendezvousSpec& rendezvous, KeepAlive&) { rendezvous.last_call = time; }},
    {.name = "keep_alive_interval",
     .set = [](milliseconds time, RendezvousSpec&, KeepAlive& keep_alive) { keep_alive.interval = time; }},
    {.name = "keep_alive_max_attempt",  // a number, read like the times
     .set = [](milliseconds number, RendezvousSpec&,
               KeepAlive& keep_alive) { keep_alive.attempts = static_cast<double>(number.count()) / 1000; }},
    {.name = "close_timeout",
     .set = [](milliseconds, RendezvousSpec&, KeepAlive&) {},
     .why_no_effect = ": dtrun waits on connections, it does not poll a store"},
    {.name = "read_timeout",
     .set = [](milliseconds time, RendezvousSpec& rendezvous, KeepAlive&) { rendezvous.read_timeout = time; },
     .may_be_short = false}};

constexpr char kIsHost[] = "is_host", kFailover[] = "failover";
constexpr const char* kStoreKeys[] = {"store_type", "use_libuv"};

Status read_is_host(Draft& draft, const Given& given) {
  static const std::set<std::string> yes = {"1", "true", "t", "yes", "y"},
                                     no = {"0", "false", "f", "no", "n"};
  if (!yes.contains(given.value) && !no.contains(given.value))
    return usage(quoted(given) + ": expected 1 or 0");
  draft.meeting.is_host = yes.contains(given.value);
  return {};
}

Status read_failover(Draft& draft, const Given& given) {
  if (given.value != "always" && given.value != "never")
    return usage(quoted(given) + ": expected always or never");
  draft.meeting.failover = given.value == "always";
  return {};
}

Status unknown_key(const Given& conf, const std::string& key) {
  std::vector<std::string> known{kIsHost, kFailover};
  for (const TimeKey& one : kTimeKeys) known.emplace_back(one.name);
  const std::string nearest = nearest_name(key, known);
  return usage(conf.source + ": unknown key " + key +
               (nearest.empty() ? "" : ", did you mean " + nearest + "?"));
}

Status read_time(Draft& draft, const Given& conf, const std::string& value, const TimeKey& key,
                 KeepAlive& keep_alive) {
  const std::string source = conf.source + " " + key.name;
  ASSIGN_OR_RETURN(milliseconds time, parse_seconds({.value = value, .source = source}));
  if (!key.may_be_short && time < milliseconds(100))
    return usage(conf.source + ": " + key.name + " must be at least 0.1 seconds");
  key.set(time, draft.spec.rendezvous, keep_alive);
  if (*key.why_no_effect != '\0') draft.notice(source + " has no effect" + key.why_no_effect);
  return {};
}

Status read_conf_entry(Draft& draft, const Given& conf, const std::string& entry, KeepAlive& keep_alive) {
  const std::size_t equals = entry.find('=');
  const std::string key(trimmed(entry.substr(0, equals), " "));
  if (equals == std::string::npos || key.empty()) return usage(quoted(conf) + ": expected KEY=SECONDS,…");
  const Given given{.value = std::string(trimmed(entry.substr(equals + 1), " ")),
                    .source = conf.source + " " + key};
  if (key == kIsHost) return read_is_host(draft, given);
  if (key == kFailover) return read_failover(draft, given);
  if (std::ranges::find(kStoreKeys, key) != std::end(kStoreKeys)) {
    draft.notice(given.source + " has no effect: dtrun has no c10d store");
    return {};
  }
  const auto* time_key = std::ranges::find_if(kTimeKeys, [&](const TimeKey& one) { return key == one.name; });
  if (time_key == std::end(kTimeKeys)) return unknown_key(conf, key);
  return read_time(draft, conf, given.value, *time_key, keep_alive);
}

Status read_conf(Draft& draft) {
  const auto conf = draft.options.given("rdzv_conf");
  if (!conf) return {};
  KeepAlive keep_alive;
  for (const std::string& entry : split(conf->value, ',')) {
    RETURN_IF_ERROR(read_conf_entry(draft, *conf, entry, keep_alive));
  }
  const double silence = static_cast<double>(keep_alive.interval.count()) * keep_alive.attempts;
  draft.spec.rendezvous.keep_alive_timeout = milliseconds(std::llround(silence));
  if (stands_alone(draft)) draft.no_effect("rdzv_conf", " on a single node");
  if (draft.spec.rendezvous.keep_alive_timeout >= milliseconds(100)) return {};
  return usage(conf->source + ": keep_alive_interval * keep_alive_max_attempt must be at least 0.1 seconds");
}

Status settle_hosting(Draft& draft) {
  if (stands_alone(draft)) return {};  // without asking for addresses
  draft.meeting.min_nodes = draft.spec.nodes.min;
  draft.meeting.max_nodes = draft.spec.nodes.max;
  HostingDecision decision = decide_hosting(draft.meeting, draft.machine.own_addresses(draft.meeting.hosts));
  draft.spec.rendezvous.hosting = std::move(decision.hosting);
  if (!decision.notice.empty()) draft.notice(decision.notice);
  return {};
}

// Only for options on the command line: variables may be set for many jobs.
void tell_key_has_no_effect(const Draft& draft) {
  for (const OptionName name : std::initializer_list<OptionName>{"key_file", "insecure"}) {
    const auto given = draft.typed.given(name);
    if (given && given->source.starts_with("--")) draft.no_effect(name, " on a single node");
  }
}

Status read_key(Draft& draft) {
  RendezvousSpec& rendezvous = draft.spec.rendezvous;
  const bool alone = stands_alone(draft);
  // A job on one node needs no key, but the tokens of its page may follow from one.
  const bool for_page = alone && draft.options.has("http_bind");
  if (alone && !for_page) tell_key_has_no_effect(draft);
  const std::vector<std::string> hosts = hosts_of(rendezvous.hosting);
  Endpoint endpoint{.host = for_page ? "*" : ""};
  if (!alone) endpoint = {.host = hosts.front(), .port = ports_of(rendezvous.hosting).front()};
  // The list's reach is that of its most exposed host.
  for (const std::string& host : hosts)
    if (rendezvous::reach_of(host) == rendezvous::Reach::kNetwork) endpoint.host = host;
  ASSIGN_OR_RETURN(const auto found,
                   find_key({.offer = key_offer(draft.options, draft.environment),
                             .environment = draft.environment,
                             .endpoint = endpoint,
                             .only_asks = draft.options.flag("dry_run") || for_page,
                             .hosts = [&] {
                               const std::optional<bool> known = may_host(rendezvous.hosting);
                               return known ? *known : std::ranges::any_of(hosts, draft.machine.is_home);
                             }}));
  if (found.key) {
    rendezvous.key = std::make_shared<const rendezvous::JobKey>(*found.key);
  } else if (!found.why_none.empty() && !alone) {
    draft.notice(plain_text_notice(found, endpoint));
  }
  return {};
}

}  // namespace

std::string rendezvous_backend(const Options& options) {
  const auto backend = options.given("rdzv_backend");
  return backend ? backend->value : "dtrun";
}

bool forbids_failover(const Options& options) {
  const auto conf = options.given("rdzv_conf");
  bool forbids = false;
  for (const std::string& entry : split(conf ? conf->value : "", ',')) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos || trimmed(entry.substr(0, equals), " ") != kFailover) continue;
    forbids = trimmed(entry.substr(equals + 1), " ") == "never";
  }
  return forbids;
}

std::string doctor_line(const Options& typed) {
  if (!typed.program.empty() && typed.program.front() == kItself) return "";
  std::string line = "dtrun doctor";
  const auto add = [&line](const std::string& word) { line += " " + shell_word(word); };
  for (const OptionEntry& option : kOptions) {
    const std::string_view group = option.group, name = option.name;
    const bool meets =
        group == group::kMeeting || group == group::kHosts || name == "nnodes" || name == "node_rank";
    const auto found = typed.values.find(option.name);
    if (!meets || name == "rdzv_conf" || name == "check" || name == "detach" || name.starts_with("http_") ||
        found == typed.values.end())
      continue;
    if (!found->second.source.starts_with("--")) continue;
    for (const std::string& value : repeated_values(found->second)) {
      if (option.is_flag() && value != "true") continue;
      add("--" + std::string(name));
      if (!option.is_flag()) add(value);
    }
  }
  if (!names_config(typed)) return line;
  for (const std::string& word : typed.program) add(word);
  return line;
}

Status read_rendezvous_options(Draft& draft) {
  Status status = run_parts(draft, {read_backend, read_local_address, read_master_port, read_run_id,
                                    read_conf, settle_hosting, read_key, read_page});
  if (draft.spec.nodes.max > 1) draft.spec.doctor = doctor_line(draft.typed);
  return status;
}

}  // namespace dtrun::cmd
