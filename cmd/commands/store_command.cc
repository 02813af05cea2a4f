#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "agent/local_address.h"
#include "agent/system/resource_limits.h"
#include "cmd/commands/answer.h"
#include "cmd/commands/commands.h"
#include "cmd/options/option_table.h"
#include "cmd/options/values.h"
#include "cmd/plan/key_options.h"
#include "proto/base/ids.h"
#include "proto/core/contract.h"
#include "proto/core/exit_codes.h"
#include "rendezvous/client/peer_links.h"
#include "rendezvous/http/open_page.h"
#include "rendezvous/server/server.h"
#include "rendezvous/wire/election.h"
#include "rendezvous/wire/grpc_setup.h"

namespace dtrun::cmd {
namespace {

// A line of the store's log.
void say(const std::string& text) {
  char at[32];
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  std::strftime(at, sizeof at, "%F %T", localtime_r(&now, &local));
  std::printf("%s dtrun store: %s\n", at, text.c_str());
  std::fflush(stdout);
}

std::string endpoint_of_list(const std::vector<std::string>& hosts, int port) {
  return rendezvous::endpoint_text(rendezvous::list_text(hosts), port);
}

sigset_t ending_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) sigaddset(&signals, number);
  return signals;
}

static_assert(kDefaultPort == 29400);  // named in the help of --port

constexpr OptionEntry kOptionsOfStore[] = {
    {.name = "bind", .placeholder = "ADDR", .help = "Address to listen on [all, IPv4 and IPv6]"},
    {.name = "port", .placeholder = "N", .help = "Port; 0: any free one [29400]"},
    {.name = "peers",
     .placeholder = "HOST,HOST,HOST",
     .help = "Three stores or more, this one too, the same list on each: if the coordinator is lost, "
             "another takes over"},
    {.name = "http_port", .placeholder = "N|auto|off", .help = "Port of the runs' page [auto]"},
    {.name = "http_bind", .placeholder = "ADDRESS", .help = "Address of the page [127.0.0.1]"},
    {.name = "ready_fd",
     .placeholder = "N",
     .help = "Once the store listens, write the value of --rdzv_endpoint as a line to this descriptor, and "
             "close it"},
    kOptionOfLauncher<"key_file", "as for the launcher">,
    {.name = "insecure", .help = "No key and plain text. Anybody who can connect may join"},
    kColorOption,
    kHelpOption};

Result<int> parse_port_or_any(const Given& given) {
  const std::string allowed = "a port from 0 (any free one) to 65535";
  Result<int> number = parse_int(given, 0, allowed);
  if (!number.ok() || number.value() <= 65535) return number;
  return usage(quoted(given) + ": expected " + allowed);
}

Result<int> parse_ready_fd(const Given& given) {
  const std::string allowed = "the number of an open descriptor above 2";
  ASSIGN_OR_RETURN(const int fd, parse_int(given, 3, allowed));
  if (fcntl(fd, F_GETFD) != -1) return fd;
  return usage(quoted(given) + ": expected " + allowed);
}

// This store's place among them: the address that it listens on, or the one that is this machine's.
Result<int> own_place(const Given& peers, const std::vector<Endpoint>& hosts, const std::string& bind) {
  for (std::size_t i = 0; i < hosts.size(); ++i)
    if (hosts[i].host == bind) return static_cast<int>(i);
  for (std::size_t i = 0; i < hosts.size(); ++i)
    if (agent::home_of(hosts[i].host).listen_address) return static_cast<int>(i);
  return usage(quoted(peers) + ": none of these is this host; name all stores, this one too");
}

Status add_peers(const Given& peers, rendezvous::ServerOptions* options) {
  ASSIGN_OR_RETURN(const std::vector<Endpoint> hosts, parse_endpoints(peers, options->port));
  if (hosts.size() < 3)
    return usage(quoted(peers) +
                 ": expected three stores or more; of two neither can tell that the other is "
                 "lost from a cut network");
  if (options->port == 0 || hosts.front().port != options->port)
    return usage(quoted(peers) + ": all stores listen on the same port, which --port gives");
  ASSIGN_OR_RETURN(const int self, own_place(peers, hosts, options->bind_address));
  std::vector<std::string> names;
  for (const Endpoint& one : hosts) names.push_back(one.host);
  const std::string list = endpoint_of_list(names, options->port);
  options->candidate = {.settings = rendezvous::election::settings_for(static_cast<int>(names.size()), self,
                                                                       false, rendezvous::merged_runs),
                        .list = list,
                        .peers = rendezvous::peers_on(names, self, {options->port}, options->key, list)};
  return {};
}

Result<rendezvous::ServerOptions> server_options(const Values<kOptionsOfStore>& given,
                                                 const Environment& environment) {
  rendezvous::ServerOptions options;
  options.bind_address = "0.0.0.0";
  options.port = kDefaultPort;
  options.separate = true;
  options.notice = say;
  options.turned_away = [](const std::string& address) {
    say(address + " was turned away: it has another key than this store, or none");
  };
  if (const auto port = given.given("port")) {
    ASSIGN_OR_RETURN(options.port, parse_port_or_any(*port));
  }
  if (const auto address = given.given("bind")) options.bind_address = address->value;
  if (options.bind_address.empty()) return usage("--bind=: expected an address of this host");
  const Endpoint endpoint{options.bind_address, options.port};
  ASSIGN_OR_RETURN(const auto found, find_key({.offer = key_offer(given, environment),
                                               .environment = environment,
                                               .endpoint = endpoint,
                                               .hosts = [] { return true; }}));
  options.key = found.key;
  if (!options.key) say(plain_text_notice(found, endpoint));
  if (const auto peers = given.given("peers")) RETURN_IF_ERROR(add_peers(*peers, &options));
  return options;
}

void say_listening(const rendezvous::ServerOptions& options, int port, std::optional<int> ready_fd) {
  const std::string& address = options.bind_address;
  const bool everywhere = address == "0.0.0.0" || address == "::";  // for gRPC the same: IPv4 and IPv6
  const std::string own = endpoint_text({everywhere ? host_name() : address, port});
  const std::string endpoint = options.candidate ? options.candidate->list : own;
  say("listening on " + (everywhere ? "port " + std::to_string(port) : endpoint_text({address, port})) +
      "; agents find it with --rdzv_endpoint " + endpoint +
      (options.key ? ", who have the key " + options.key->fingerprint() : ""));
  if (ready_fd) {
    (void)dprintf(*ready_fd, "%s\n", endpoint.c_str());  // if nobody reads it any more, the jobs go on
    close(*ready_fd);
  }
}

// Nothing with --http_port off.
Result<std::optional<rendezvous::PageOptions>> page_options(const Values<kOptionsOfStore>& given,
                                                            const rendezvous::ServerOptions& server) {
  std::optional<int> port = 0;
  rendezvous::PageOptions page{.key = server.key, .host = host_name()};
  Status status = read_given(given.given("http_port"), &port, parse_page_port);
  if (status.ok()) status = read_given(given.given("http_bind"), &page.address, parse_numeric_address);
  if (status.ok()) status = check_page(given.given("http_bind"), server.key.has_value());
  if (!status.ok()) return status;
  if (!port) return std::optional<rendezvous::PageOptions>();
  page.port = *port;
  return std::optional(page);
}

// Nobody waits for a store to start, so its page has its thread at once. A store without a page is one, too.
std::unique_ptr<rendezvous::HttpServer> show_page(rendezvous::Server& server,
                                                  const rendezvous::PageOptions& options, bool in_pod) {
  auto page = rendezvous::open_page(server, options);
  if (!page.ok()) {
    say(page.status().message());
    return nullptr;
  }
  page.value()->serve();
  say("watch: " + rendezvous::page_text(page.value()->url(), options.host, in_pod));
  return std::move(page).value();
}

int run_store(const Invocation& invocation) {
  const Values<kOptionsOfStore> given{invocation.values};
  std::optional<int> ready_fd;
  const Status ready = read_given(given.given("ready_fd"), &ready_fd, parse_ready_fd);
  if (!ready.ok()) return fail(ready);
  Result<rendezvous::ServerOptions> options = server_options(given, invocation.environment);
  if (!options.ok()) return fail(options.status());
  options.value().times = invocation.times;
  auto page_wanted = page_options(given, options.value());
  if (!page_wanted.ok()) return fail(page_wanted.status());
  const sigset_t signals = ending_signals();  // blocked before threads start, which inherit it
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);  // if the log's reader is gone, the jobs go on
  if (const Status status = agent::check_memory_limit(); !status.ok()) return fail(status);
  agent::allow_all_open_files();  // a connection for each agent of each job
  auto server = rendezvous::Server::start(options.value());
  if (!server.ok()) return fail(server.status());
  say_listening(options.value(), server.value()->port(), ready_fd);
  std::unique_ptr<rendezvous::HttpServer> page;
  if (auto& wanted = page_wanted.value()) {
    wanted->endpoint = endpoint_text({host_name(), server.value()->port()});
    page = show_page(*server.value(), *wanted, invocation.environment("KUBERNETES_SERVICE_HOST") != nullptr);
  }
  int number = 0;
  sigwait(&signals, &number);
  const int members = server.value()->members();
  const std::string until =
      options.value().candidate ? "another store to take over" : "it to be started again";
  say("stopped by " + std::string("SIG") + sigabbrev_np(number) +
      (members > 0 ? "; " + std::to_string(members) + " agents go on and wait for " + until : ""));
  return exit_code_of_signal(number);
}

}  // namespace

constinit const Command kStoreCommand{
    .name = "store",
    .summary = "Run the coordinator and its store on a host of their own",
    .description =
        "Serves any number of jobs: agents may come and go, and their workers keep running while "
        "this process is restarted.",
    .options = kOptionsOfStore,
    .rare = true,
    .run = run_store};

}  // namespace dtrun::cmd
