#include "cmd/commands/status_command.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <set>
#include <thread>

#include "agent/job_registry.h"
#include "cmd/commands/answer.h"
#include "cmd/commands/screen.h"
#include "cmd/commands/status_text.h"
#include "cmd/options/values.h"
#include "proto/core/contract.h"
#include "proto/core/exit_codes.h"
#include "rendezvous/client/status_client.h"

namespace dtrun::cmd {
namespace {

using namespace std::chrono_literals;

constexpr auto kTimeout = 5s;

struct Question {
  std::string endpoint;  // as given; empty: the jobs of this user on this host
  std::string run_id;    // empty: all
  bool json = false;
  bool watch = false;
};

std::string text_of(const Endpoint& endpoint) {
  const bool ipv6 = endpoint.host.find(':') != std::string::npos;
  return (ipv6 ? "[" + endpoint.host + "]" : endpoint.host) + ":" + std::to_string(endpoint.port);
}

// Several agents of one host may take part in one job.
std::vector<Endpoint> local_endpoints(const std::string& run_id) {
  std::vector<Endpoint> endpoints;
  std::set<std::string> seen;
  for (const agent::RegisteredJob& job : agent::registered_jobs(agent::registry_folder())) {
    const Endpoint endpoint{job.host, job.port};
    const bool wanted = run_id.empty() || job.run_id == run_id;
    if (wanted && seen.insert(text_of(endpoint)).second) endpoints.push_back(endpoint);
  }
  return endpoints;
}

Result<std::vector<Endpoint>> endpoints_of(const Question& question) {
  if (question.endpoint.empty()) return local_endpoints(question.run_id);
  Result<Endpoint> endpoint = parse_endpoint({question.endpoint, "--rdzv_endpoint"}, kDefaultPort);
  if (!endpoint.ok()) return endpoint.status();
  if (endpoint.value().port > 0) return std::vector<Endpoint>{endpoint.value()};
  return usage("--rdzv_endpoint=" + question.endpoint + ": expected a port from 1 to 65535");
}

struct Answer {
  std::string text;
  nlohmann::ordered_json runs = nlohmann::ordered_json::array();
  Status failure;  // of the last endpoint that did not answer
};

void ask(const Endpoint& endpoint, const std::string& run_id, Answer* answer) {
  const auto reply = rendezvous::fetch_status(endpoint.host, endpoint.port, run_id, kTimeout);
  if (!reply.ok()) {
    answer->failure = reply.status();
    return;
  }
  for (const rendezvous::v1::RunStatus& run : reply.value().runs()) {
    answer->text +=
        (answer->text.empty() ? "" : "\n") + status_text(run, text_of(endpoint), palette_of_answers());
    answer->runs.push_back(status_json(run, text_of(endpoint)));
  }
}

std::string nothing(const Question& question) {
  const std::string run = question.run_id.empty() ? "no run" : "no run " + question.run_id;
  if (!question.endpoint.empty()) return run + " at " + question.endpoint + "\n";
  return run + " of this user on this host; elsewhere: --rdzv_endpoint HOST[:PORT]\n";
}

Answer ask_all(const Question& question) {
  const Result<std::vector<Endpoint>> endpoints = endpoints_of(question);
  Answer answer;
  if (!endpoints.ok()) answer.failure = endpoints.status();
  if (endpoints.ok())
    for (const Endpoint& endpoint : endpoints.value()) ask(endpoint, question.run_id, &answer);
  // An agent of this host that is just going is no failure; an endpoint that was asked for is.
  if (question.endpoint.empty() && !answer.text.empty()) answer.failure = Status();
  return answer;
}

int show_once(const Question& question) {
  const Answer answer = ask_all(question);
  if (!answer.failure.ok()) return fail(answer.failure);
  const std::string text = question.json         ? answer.runs.dump(2) + "\n"
                           : answer.text.empty() ? nothing(question)
                                                 : answer.text;
  return cmd::answer(text);
}

ScreenSize terminal_size() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {size.ws_row, size.ws_col};
}

// On a terminal: until interrupted. What goes wrong takes the text's place, and may be right the next time.
int keep_showing(const Question& question) {
  Screen screen;
  std::setvbuf(stdout, nullptr, _IOFBF, std::size_t{1} << 16);  // one write a text: no flicker
  for (;; std::this_thread::sleep_for(1s)) {
    const Answer answer = ask_all(question);
    if (answer.failure.exit_code() == kExitUsage) return show_once(question);
    const std::string text = !answer.failure.ok()
                                 ? "dtrun: " + palette_of_answers().error(answer.failure.message()) + "\n"
                             : answer.text.empty() ? nothing(question)
                                                   : answer.text;
    std::fputs(screen.show(text, terminal_size()).c_str(), stdout);
    std::fflush(stdout);
  }
}

constexpr OptionEntry kOptionsOfStatus[] = {
    {.name = "rdzv_endpoint",
     .placeholder = "HOST[:PORT]",
     .help = "The coordinator to ask [this host's jobs]"},
    {.name = "rdzv_id", .placeholder = "ID", .help = "Only this run [all]"},
    {.name = "json", .help = "A JSON array with an object for each run"},
    {.name = "watch", .help = "Ask again every second, until interrupted"},
    kColorOption,
    kHelpOption};

std::string value_of(const std::optional<Given>& given) { return given ? given->value : ""; }

int run_status(const Invocation& invocation) {
  const Values<kOptionsOfStatus> options{invocation.values};
  const Question question{.endpoint = value_of(options.given("rdzv_endpoint")),
                          .run_id = value_of(options.given("rdzv_id")),
                          .json = options.flag("json"),
                          .watch = options.flag("watch")};
  if (question.watch && !question.json && isatty(STDOUT_FILENO) != 0) return keep_showing(question);
  for (;;) {
    const int code = show_once(question);
    if (!question.watch || code == kExitUsage || code == kExitSoftware) return code;
    std::this_thread::sleep_for(1s);
  }
}

}  // namespace

constinit const Command kStatusCommand{
    .name = "status",
    .summary = "Show who is where, doing what",
    .description =
        "Asks one coordinator, or those of all jobs of this user that have an agent on this host. "
        "--rdzv_endpoint and --rdzv_id are also read from DTRUN_<NAME> and PET_<NAME>, as by the launcher.",
    .options = kOptionsOfStatus,
    .run = run_status};

}  // namespace dtrun::cmd
