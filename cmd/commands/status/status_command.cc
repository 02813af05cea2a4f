#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "agent/job_registry.h"
#include "cmd/commands/answer.h"
#include "cmd/commands/commands.h"
#include "cmd/commands/status/coordinator_address.h"
#include "cmd/commands/status/run_folder.h"
#include "cmd/commands/status/status_view.h"
#include "cmd/commands/status/watch_run.h"
#include "cmd/options/option_table.h"
#include "cmd/options/values.h"
#include "cmd/plan/key_options.h"
#include "proto/base/clock.h"
#include "proto/core/exit_codes.h"
#include "proto/core/nearest.h"
#include "rendezvous/client/status_client.h"
#include "rendezvous/text/names.h"
#include "rendezvous/text/status_text.h"
#include "rendezvous/wire/convert.h"

namespace dtrun::cmd {
namespace {

using namespace std::chrono_literals;

constexpr auto kTimeout = 5s;
constexpr auto kLookLimit = 30s;  // of a single look at all coordinators
constexpr auto kUntilBegun = 50ms;
constexpr int kLooksUntilTold = 40;  // the name may be wrong
// At most so many ended runs are shown: people look for running jobs, or for those that ended just now.
constexpr int kEndsShown = 5;

using rendezvous::v1::RunStatus;

struct LocalEnd {
  CoordinatorAddress address;  // of its coordinator, which may be gone
  double at = 0;               // seconds since 1970
  RunStatus run;
};

struct StatusQuestion {
  std::string endpoint;  // as given; empty: the jobs of this user on this host
  std::string run_id;    // empty: all
  bool json = false;
  bool watch = false;
  bool exit_status = false;
  std::optional<RunStatus::Phase> until = {};
  bool open = false;
  std::optional<rendezvous::JobKey> key = {};
  Times::Duration until_gone = Times().until_gone;
};

// The status as the coordinator told it, or would have.
RunStatus status_of(const agent::EndedJob& ended) {
  RunStatus run;
  run.set_run_id(ended.job.run_id);
  run.set_phase(RunStatus::OVER);
  run.set_generation(ended.generation);
  run.set_world_size(ended.world_size);
  run.set_min_nodes(ended.min_nodes);
  run.set_max_nodes(ended.max_nodes);
  run.set_restart_count(ended.end.restart_count);
  run.set_max_restarts(ended.max_restarts);
  run.set_membership_changes(ended.end.membership_changes);
  run.set_reason(ended.end.reason);
  if (ended.end.goodput.total() > 0) rendezvous::to_wire(ended.end.goodput, run.mutable_goodput());
  if (ended.end.verdict) rendezvous::to_wire(*ended.end.verdict, run.mutable_verdict());
  run.set_exit_code(ended.end.exit_code);
  run.set_ended_age_s(std::max(0.0, wall_seconds() - ended.ended_at));
  return run;
}

// The runs that agents of this host knew to end, and whose coordinators may be gone.
std::vector<LocalEnd> local_ends(const StatusQuestion& question) {
  std::vector<LocalEnd> ends;
  for (const agent::EndedJob& end : agent::ended_jobs(agent::registry_folder(), wall_seconds())) {
    const Endpoint endpoint{end.job.host, end.job.port};
    const bool wanted = question.run_id.empty() || question.run_id == end.job.run_id;
    const bool there = question.endpoint.empty() || question.endpoint == text_of(endpoint);
    if (wanted && there) ends.push_back({{endpoint, end.job.has_key}, end.ended_at, status_of(end)});
  }
  return ends;
}

struct RunsAnswer {
  std::string text;
  nlohmann::ordered_json runs = nlohmann::ordered_json::array();
  std::string links;  // of the runs' pages, a line each
  std::set<std::string> run_ids;
  std::string locked;  // lines on coordinators that want another key
  Status failure;      // the last endpoint did not answer, or the named run is unknown

  void add(const RunStatus& run, const std::string& where, bool in_text = true) {
    if (in_text)
      text += (text.empty() ? "" : "\n") + rendezvous::status_text(run, where, palette_of_answers());
    runs.push_back(rendezvous::status_json(run, where));
    if (run.has_page()) links += rendezvous::page_link(run.page(), run.run_id()) + "\n";
    run_ids.insert(run.run_id());
  }
};

void ask(const CoordinatorAddress& address, const StatusQuestion& question, RunsAnswer* answer) {
  const Endpoint& endpoint = address.endpoint;
  const auto reply = rendezvous::fetch_status(endpoint.host, endpoint.port, question.run_id, kTimeout,
                                              key_for(address, question.key));
  if (!reply.ok()) {
    answer->failure = reply.status();
    if (reply.status().exit_code() == kExitNoPermission) answer->locked += reply.status().message() + "\n";
    return;
  }
  for (const RunStatus& run : reply.value().runs()) answer->add(run, text_of(endpoint));
}

std::string nothing(const StatusQuestion& question) {
  const std::string run = question.run_id.empty() ? "no run" : "no run " + question.run_id;
  if (!question.endpoint.empty()) return run + " at " + question.endpoint;
  return run + " of this user on this host; elsewhere: --rdzv_endpoint HOST[:PORT]";
}

RunsAnswer ask_all(const StatusQuestion& question) {
  const Result<std::vector<CoordinatorAddress>> addresses = addresses_of(question.endpoint, question.run_id);
  RunsAnswer answer;
  if (!addresses.ok()) answer.failure = addresses.status();
  if (addresses.ok())
    for (const CoordinatorAddress& address : addresses.value()) ask(address, question, &answer);
  int ends = 0;
  for (const LocalEnd& end : local_ends(question)) {
    if (answer.run_ids.contains(end.run.run_id())) continue;
    answer.add(end.run, text_of(end.address.endpoint), ++ends <= kEndsShown);
  }
  if (ends > kEndsShown)
    answer.text += "\nand " + std::to_string(ends - kEndsShown) +
                   " that ended before; dtrun status RUN_ID shows one, --json all\n";
  // An agent of this host may just be ending, or has ended: no failure.
  if (!answer.text.empty()) {
    answer.failure = Status();
    if (!answer.locked.empty()) answer.text += "\n" + answer.locked;
  }
  const bool found_none = answer.failure.ok() && answer.text.empty();
  if (found_none && !question.run_id.empty()) answer.failure = Status(kExitUnavailable, nothing(question));
  if (found_none) answer.text = palette_of_answers().message(nothing(question)) + "\n";
  return answer;
}

int show_once(const StatusQuestion& question) {
  answer_within(kLookLimit);
  const RunsAnswer answer = ask_all(question);
  if (!answer.failure.ok()) return fail(answer.failure);
  if (question.open) {
    if (!answer.links.empty()) return cmd::answer(answer.links);
    return fail(
        Status(kExitUnavailable, answer.runs.empty()
                                     ? nothing(question)
                                     : "no page: the run is over, or was started with --http_port off"));
  }
  return cmd::answer(question.json ? rendezvous::json_document(answer.runs) : answer.text);
}

// Shows all runs until interrupted. A failed look does not end it: the next one may work.
int keep_showing(const StatusQuestion& question) {
  StatusView view(question.json, isatty(STDOUT_FILENO) != 0);
  for (;; std::this_thread::sleep_for(1s)) {
    const RunsAnswer answer = ask_all(question);
    if (answer.failure.exit_code() == kExitUsage) return fail(answer.failure);
    std::string lines;
    for (const auto& run : answer.runs) lines += rendezvous::json_line(run);
    const int code = answer.failure.ok() ? view.show(answer.text, lines) : view.show(answer.failure);
    if (code != kExitOk) return code;
  }
}

// For a readiness probe, in a pod that may not reach the coordinator: by the agents' own entries alone.
int tell_ready(const StatusQuestion& question) {
  answer_within(kTimeout);
  std::string waiting;
  for (const agent::RegisteredJob& job : agent::registered_jobs(agent::registry_folder())) {
    if (!question.run_id.empty() && job.run_id != question.run_id) continue;
    if (job.is_ready) return cmd::answer("run " + job.run_id + " is under way here\n");
    waiting = "run " + job.run_id + " is not under way here: it waits for nodes, or starts again";
  }
  return fail(Status(kExitUnavailable, waiting.empty() ? nothing(question) : waiting));
}

// The one address that may have the named run.
Result<CoordinatorAddress> address_of_run(const StatusQuestion& question) {
  ASSIGN_OR_RETURN(std::vector<CoordinatorAddress> addresses,
                   addresses_of(question.endpoint, question.run_id));
  if (addresses.empty()) {
    const std::vector<LocalEnd> ends = local_ends(question);
    if (ends.empty()) return Status(kExitUnavailable, nothing(question));
    return ends.front().address;
  }
  if (addresses.size() == 1) return addresses.front();
  std::string where;
  for (const CoordinatorAddress& address : addresses) where += " " + text_of(address.endpoint);
  return usage("several runs " + question.run_id + " on this host; name one with --rdzv_endpoint:" + where);
}

int watch_named(const StatusQuestion& question) {
  Result<CoordinatorAddress> address = address_of_run(question);
  for (int looks = 1; question.until && address.status().exit_code() == kExitUnavailable;
       ++looks, address = address_of_run(question)) {
    if (looks == kLooksUntilTold) notice("waiting: " + address.status().message());
    std::this_thread::sleep_for(kUntilBegun);
  }
  if (!address.ok()) return fail(address.status());
  const Endpoint& endpoint = address.value().endpoint;
  const auto left_word = [&question](double since) -> std::optional<RunStatus> {
    for (LocalEnd& end : local_ends(question))
      if (end.at >= since) return std::move(end.run);
    return std::nullopt;
  };
  return watch_run({endpoint, text_of(endpoint), question.run_id, question.json, question.exit_status,
                    question.until, left_word, key_for(address.value(), question.key), question.until_gone});
}

int show_end(const agent::EndedJob& ended, const std::filesystem::path& folder,
             const StatusQuestion& question) {
  RunsAnswer answer;
  answer.add(status_of(ended), folder.string());
  const int code = cmd::answer(!question.json   ? answer.text
                               : question.watch ? rendezvous::json_line(answer.runs[0])
                                                : rendezvous::json_document(answer.runs));
  return code == kExitOk && question.exit_status ? ended.end.exit_code : code;
}

// The run that left `directory`: its coordinator tells of it as long as it is at work on this host, then the
// report does, however long ago it ended.
int show_run_of(const std::string& directory, StatusQuestion question) {
  const Result<RunFolder> folder = find_run_folder(directory);
  if (!folder.ok()) return fail(folder.status());
  question.run_id = run_id_in(folder.value());
  if (!question.run_id.empty() && !local_addresses(question.run_id).empty())
    return question.watch ? watch_named(question) : show_once(question);
  if (const auto ended = end_in(folder.value())) return show_end(*ended, folder.value().path, question);
  return fail(
      Status(kExitUnavailable, directory +
                                   ": there is no report.json, and no agent of the run is on this host: it "
                                   "goes on elsewhere (--rdzv_endpoint HOST[:PORT]), or its agents were "
                                   "killed; dtrun report " +
                                   directory + " shows what it left"));
}

constexpr OptionEntry kOptionsOfStatus[] = {
    {.name = "rdzv_endpoint",
     .placeholder = "HOST[:PORT]",
     .help = "One HOST, or HOST,HOST,HOST [this host's jobs]"},
    {.name = "rdzv_id", .placeholder = "ID", .help = "Only this run, as RUN_ID [all]"},
    kOptionOfLauncher<"key_file", "as for the launcher">,
    {.name = "insecure", .help = "Ask a coordinator that has no key, in plain text"},
    {.name = "json", .help = "JSON: an array of runs; with --watch or --until a run per line"},
    {.name = "watch", .help = "Ask again every second; one run until it is over, all runs until interrupted"},
    {.name = "until",
     .placeholder = "gathering|running|stopping|over",
     .help =
         "With RUN_ID: wait until the run is in this phase, from before its begin; then show it. 69 if it "
         "is over first"},
    {.name = "open", .help = "Only print links that open the runs' pages"},
    {.name = "ready", .help = "For probes: exit 0 if workers run here, else 69"},
    {.name = "exit_status", .help = "With --watch RUN_ID: end with the run's exit code"},
    kColorOption,
    kHelpOption};

std::string value_of(const std::optional<Given>& given) { return given ? given->value : ""; }

Result<RunStatus::Phase> parse_phase(const Given& given) {
  const std::vector<std::string> names(std::begin(rendezvous::kPhaseNames),
                                       std::end(rendezvous::kPhaseNames));
  const auto found = std::ranges::find(names, given.value);
  if (found != names.end()) return static_cast<RunStatus::Phase>(found - names.begin());
  const std::string nearest = nearest_name(given.value, names);
  return usage(quoted(given) + ": expected gathering, running, stopping or over" +
               (nearest.empty() ? "" : ", did you mean " + nearest + "?"));
}

int run_status(const Invocation& invocation) {
  const Values<kOptionsOfStatus> options{invocation.values};
  StatusQuestion question{.endpoint = value_of(options.given("rdzv_endpoint")),
                          .run_id = value_of(options.given("rdzv_id")),
                          .json = options.flag("json"),
                          .watch = options.flag("watch"),
                          .exit_status = options.flag("exit_status"),
                          .open = options.flag("open"),
                          .until_gone = invocation.times.until_gone};
  const std::string& named = invocation.argument;
  const bool is_folder = named.find('/') != std::string::npos || (!named.empty() && is_run_folder(named));
  if (!named.empty() && !is_folder) question.run_id = named;
  if (options.flag("ready")) return tell_ready(question);
  const Status phase = read_given(options.given("until"), &question.until, parse_phase);
  if (!phase.ok()) return fail(phase);
  if (question.until && (is_folder || question.run_id.empty() || question.watch))
    return fail(usage("--until is for one run, and without --watch: dtrun status RUN_ID --until PHASE"));
  const auto key = key_of_asker(options, invocation.environment);
  if (!key.ok()) return fail(key.status());
  question.key = key.value();
  if (question.open && (question.watch || question.until || question.json))
    return fail(usage("--open prints links, and is used without --watch, --until and --json"));
  const bool one = question.watch && (is_folder || !question.run_id.empty());
  if (question.exit_status && !one)
    return fail(usage("--exit_status is for one run that is watched; use dtrun status --watch RUN_ID"));
  if (is_folder) return show_run_of(named, std::move(question));
  if (one || question.until) return watch_named(question);
  return question.watch ? keep_showing(question) : show_once(question);
}

}  // namespace

constinit const Command kStatusCommand{
    .name = "status",
    .summary = "Show the state of runs",
    .description =
        "Asks one coordinator, or those of all jobs of this user that have an agent on this host. Runs that "
        "ended within the last ten minutes are shown too. RUN is a run's id, or the directory that it left "
        "(its "
        "output_dir or LOG_DIR/RUN_ID), which tells how it ended however long ago that was. "
        "--rdzv_endpoint and --rdzv_id are also read from DTRUN_<NAME> and PET_<NAME>, as by the launcher.",
    .argument = "[RUN]",
    .options = kOptionsOfStatus,
    .run = run_status};

}  // namespace dtrun::cmd
