#include "cmd/commands/store_command.h"

#include <signal.h>

#include <cstdio>
#include <cstring>
#include <ctime>

#include "agent/system/open_files.h"
#include "cmd/commands/subcommand.h"
#include "cmd/options/values.h"
#include "proto/base/ids.h"
#include "proto/core/contract.h"
#include "proto/core/exit_codes.h"
#include "rendezvous/server/server.h"

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

std::string endpoint_of(const std::string& host, int port) {
  return (host.find(':') != std::string::npos ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

sigset_t ending_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) sigaddset(&signals, number);
  return signals;
}

int fail(const Status& status) {
  std::fprintf(stderr, "dtrun: %s\n", status.message().c_str());
  return status.exit_code();
}

Status read_port(const std::string& text, int* port) {
  const std::string allowed = "a port from 0 (any free one) to 65535";
  const Given given{text, "--port"};
  Result<int> number = parse_int(given, 0, allowed);
  if (!number.ok()) return number.status();
  if (number.value() > 65535) return usage(quoted(given) + ": expected " + allowed);
  *port = number.value();
  return {};
}

}  // namespace

int run_store(const std::vector<std::string>& arguments) {
  rendezvous::ServerOptions options;
  options.bind_address = "0.0.0.0";
  options.port = kDefaultPort;
  options.separate = true;
  options.notice = say;
  CLI::App app(
      "Runs the coordinator and its store on a host of their own, for any number of jobs:\n"
      "agents on any node may come and go, and while this process is restarted their\n"
      "workers keep running.\n",
      "store");
  std::string port_text;
  app.add_option("--bind", options.bind_address,
                 "Address to listen on; :: for IPv6 as well [" + options.bind_address + "]")
      ->type_name("ADDR");
  const CLI::Option* port_option =
      app.add_option("--port", port_text, "Port; 0: any free one [" + std::to_string(options.port) + "]")
          ->type_name("N");
  if (const auto done = parse_subcommand(app, arguments)) return *done;
  const Status status = port_option->count() > 0 ? read_port(port_text, &options.port) : Status();
  if (!status.ok()) return fail(status);
  if (options.bind_address.empty()) return fail(usage("--bind=: expected an address, e.g. 0.0.0.0 or ::"));

  const sigset_t signals = ending_signals();  // blocked before threads start, which inherit it
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);       // whoever read the log has gone; the jobs go on
  agent::allow_all_open_files();  // a connection for each agent of each job
  auto server = rendezvous::Server::start(options);
  if (!server.ok()) return fail(server.status());
  const int port = server.value()->port();
  const bool everywhere = options.bind_address == "0.0.0.0" || options.bind_address == "::";
  say("listening on " + endpoint_of(options.bind_address, port) + "; agents find it with --rdzv_endpoint " +
      endpoint_of(everywhere ? host_name() : options.bind_address, port));
  int number = 0;
  sigwait(&signals, &number);
  const int members = server.value()->members();
  say("stopped by " + std::string("SIG") + sigabbrev_np(number) +
      (members > 0 ? "; " + std::to_string(members) + " agents go on and wait for it to be started again"
                   : ""));
  return exit_code_of_signal(number);
}

}  // namespace dtrun::cmd
