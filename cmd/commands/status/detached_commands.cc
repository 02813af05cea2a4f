#include <signal.h>

#include "cmd/commands/answer.h"
#include "cmd/commands/commands.h"
#include "cmd/launch/detached_runs.h"
#include "cmd/options/values.h"
#include "proto/base/log.h"
#include "proto/core/text.h"

namespace dtrun::cmd {
namespace {

constexpr OptionEntry kOptionsOfAttach[] = {
    {.name = "list", .help = "List the detached runs, a line each: RUN, running or ended, its hosts"},
    kColorOption,
    kHelpOption};
constexpr OptionEntry kOptionsOfStop[] = {
    {.name = "now", .help = "Kill the workers at once, without a grace period"}, kColorOption, kHelpOption};
constexpr OptionEntry kOptionsOfLogs[] = {
    {.name = "follow", .short_name = "f", .help = "Follow the output to its end"}, kColorOption, kHelpOption};

// Calls the run's hosts, as `prepare` changes the plan.
template <typename Prepare>
int come_back(const Invocation& invocation, Purpose purpose, Prepare prepare) {
  Result<DetachedRun> run = find_detached_run(invocation.argument);
  if (!run.ok()) return fail(run.status());
  set_up_log("dtrun");
  LaunchPlan plan = plan_to_come_back(run.value(), purpose);
  plan.times = invocation.times;
  prepare(plan);
  const bool to_the_end = plan.attach.follow();
  bool ended = false;
  const int exit_code = run_launch(std::move(plan), &ended);
  run.value().ended = ended && to_the_end;
  if (run.value().ended)
    if (const Status status = remember_run(run.value()); !status.ok()) notice(status.message());
  return exit_code;
}

int list_runs() {
  std::string lines;
  for (const DetachedRun& run : detached_runs()) {
    std::vector<std::string> hosts;
    for (const DetachedHost& host : run.hosts) hosts.push_back(host.host);
    lines += run.run_id + "\t" + (run.ended ? "ended" : "running") + "\t" + join(hosts, ",") + "\n";
  }
  return answer(lines);
}

int run_attach(const Invocation& invocation) {
  if (Values<kOptionsOfAttach>{invocation.values}.flag("list")) return list_runs();
  return come_back(invocation, Purpose::kAttach, [](LaunchPlan&) {});
}

int run_stop(const Invocation& invocation) {
  const Values<kOptionsOfStop> options{invocation.values};
  return come_back(invocation, Purpose::kStop, [&](LaunchPlan& plan) {
    plan.attach.set_from_now(true);
    plan.signals = {SIGTERM};
    if (options.flag("now")) plan.signals.push_back(SIGINT);  // a second one, as of an impatient user
  });
}

int run_logs(const Invocation& invocation) {
  const Values<kOptionsOfLogs> options{invocation.values};
  return come_back(invocation, Purpose::kLogs,
                   [&](LaunchPlan& plan) { plan.attach.set_follow(options.flag("follow")); });
}

}  // namespace

constinit const Command kAttachCommand{
    .name = "attach",
    .summary = "Attach to a job that was started with --detach",
    .description =
        "Shows the job's output from its start on, then follows it, and ends with its exit code. "
        "Ctrl-C leaves the job running. Also for a job that has ended. RUN may be left out if one "
        "run is active.",
    .argument = "[RUN]",
    .options = kOptionsOfAttach,
    .rare = true,
    .run = run_attach};

constinit const Command kStopCommand{
    .name = "stop",
    .summary = "End a job that was started with --detach",
    .description =
        "Like Ctrl-C on the terminal of a job: workers are told to end, and waited for. Ctrl-C "
        "here, or --now, kills them at once. Ends with 0 once the job runs nowhere.",
    .argument = "[RUN]",
    .options = kOptionsOfStop,
    .rare = true,
    .run = run_stop};

constinit const Command kLogsCommand{.name = "logs",
                                     .summary = "Show the output of a job started with --detach",
                                     .description = "Ends with 0, whatever the job's exit code.",
                                     .argument = "[RUN]",
                                     .options = kOptionsOfLogs,
                                     .rare = true,
                                     .run = run_logs};

}  // namespace dtrun::cmd
