#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>

#include "cmd/check/between.h"
#include "cmd/check/check_json.h"
#include "cmd/check/core/findings.h"
#include "cmd/check/gather.h"
#include "cmd/commands/answer.h"
#include "cmd/commands/commands.h"
#include "cmd/commands/machine_in_its_place.h"
#include "cmd/launch/launch_options.h"
#include "cmd/options/options.h"
#include "cmd/options/values.h"
#include "cmd/plan/make_job_spec.h"
#include "proto/base/log.h"

namespace dtrun::cmd {
namespace {

// Beside the wait for other nodes: GPUs' and Slurm's tools, connections between hosts and the shared disk
// take their time.
constexpr std::chrono::seconds kForTheLook{180};

constexpr OptionEntry kOwnOptions[] = {
    {.name = "verbose", .short_name = "v", .help = "All checks, those that passed too"},
    {.name = "json", .help = "The report as one line of JSON"},
    {.name = "strict", .help = "Exit with 1 for warnings too"},
    {.name = "wait", .placeholder = "SECONDS", .help = "How long to wait for the job's other nodes [30]"},
    {.name = "alone", .help = "Look at this node only, not between the nodes of the job"},
    {.name = "prober",
     .placeholder = "NODES",
     .help = "For dtrun itself: this process is one of those that look between nodes"}};

// The launcher's too, so that a job's command becomes its check by one word more: but those that ask the
// launcher itself for a text.
constexpr bool is_of_job(const OptionEntry& option) {
  return !option.asks_for_text || std::string_view(option.name) == kHelpOption.name;
}
constexpr auto kOptionsOfDoctor = [] {
  std::array<OptionEntry, std::size(kOwnOptions) + std::ranges::count_if(kOptions, is_of_job)> all{};
  std::ranges::copy_if(kOptions, std::ranges::copy(kOwnOptions, all.begin()).out, is_of_job);
  return all;
}();

using DoctorOptions = Values<kOptionsOfDoctor>;

// The job's own command line.
Options job_options(const Invocation& invocation) {
  Options options;
  for (const OptionEntry& entry : kOptions)
    if (const auto found = invocation.values.find(entry.name); found != invocation.values.end())
      options.values.insert(*found);
  if (!invocation.argument.empty()) {
    options.program = {invocation.argument};
    std::ranges::copy(invocation.from_second_on(), std::back_inserter(options.program));
  }
  return options;
}

Surroundings surroundings_of(const CheckedJob& job) {
  if (!job.spec) return {};
  const Hosting& hosting = job.spec->rendezvous.hosting;
  const std::vector<std::string> hosts = hosts_of(hosting);
  const std::vector<int> ports = ports_of(hosting);
  if (hosts.empty() || ports.empty()) return {};
  return {.endpoint_host = hosts.front(), .endpoint_port = ports.front()};
}

int tell(const Report& report, const DoctorOptions& options) {
  const bool strict = options.flag("strict");
  const int told =
      answer(options.flag("json") ? report_json(report, strict) + "\n"
                                  : report_text(report, options.flag("verbose"), palette_of_answers()));
  return told != kExitOk ? told : exit_code_of(report, strict);
}

// The short run is none of the job's, which may be under way.
std::string run_of(const Options& job) {
  const auto id = job.given("rdzv_id");
  return id ? id->value + "-doctor" : "doctor";
}

// `nodes`: of the job; 0: those that hosts are named for.
int look_and_tell(const Options& job, const std::string& run_id, int nodes, const DoctorOptions& options) {
  Meeting meeting{.options = job, .run_id = run_id, .nodes = nodes};
  const auto seconds = [](const Given& given) -> Result<std::chrono::seconds> {
    const Result<int> number = parse_count(given, 86400, "a number of seconds");
    return number.ok() ? Result(std::chrono::seconds(number.value())) : number.status();
  };
  const Status status = read_given(options.given("wait"), &meeting.wait, seconds);
  if (!status.ok()) return fail(status);
  answer_within(meeting.wait + kForTheLook);
  const LookBetween look = look_between(meeting);
  if (look.report) return tell(*look.report, options);
  return look.exit_code != kExitOk ? look.exit_code
                                   : fail(Status(kExitSoftware, "the probers told no report"));
}

int run_doctor(const Invocation& invocation) {
  const DoctorOptions options{invocation.values};
  set_up_log("dtrun");
  Options typed = job_options(invocation);
  if (const auto nodes = options.given("prober"))
    return run_prober(std::move(typed), std::atoi(nodes->value.c_str()), invocation.environment);
  if (names_config(typed))
    if (const auto config = settle_config(&typed); !config.ok()) return fail(config.status());
  if (names_hosts(typed) && !options.flag("alone")) return look_and_tell(typed, run_of(typed), 0, options);
  const CheckedJob job = plan_job(typed, machine_in_its_place(), invocation.environment);
  if (job.spec && job.spec->nodes.max > 1 && !options.flag("alone"))
    return look_and_tell(typed, run_of(typed), job.spec->nodes.max, options);
  answer_within(kForTheLook);
  const NodeFacts facts = gather(job, surroundings_of(job));
  return tell({.sections = {{.title = "this node (" + facts.host + ")", .findings = findings_of(facts)}}},
              options);
}

}  // namespace

constinit const Command kDoctorCommand{
    .name = "doctor",
    .summary = "Check whether this node, or all nodes of a job, are fit for it",
    .description =
        "Type a job's own command line behind `dtrun doctor`: it takes all options of the launcher, and a "
        "config if "
        "there is one. Each check that fails or warns is told with what to do about it.\n\n"
        "For a job of several nodes type it on each of them at the same time, or once with --hostfile: then "
        "they "
        "also try the connections between them, and all print the same report. That is a short run of its "
        "own, with "
        "the job's options, key and endpoint, named after it.\n\n"
        "Nothing is changed, and nothing of the job started.\n\n"
        "Exit codes: 0, also with warnings; 1: a check failed; 69: other nodes did not come.",
    .argument = "[CONFIG.json]",
    .second = "[KEY=VALUE]",
    .second_repeats = true,
    .options = kOptionsOfDoctor,
    .rare = true,
    .run = run_doctor};

}  // namespace dtrun::cmd
