// dtrun: reads the command line, makes the plan, runs the agent.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "agent/agent.h"
#include "agent/system/resource_limits.h"
#include "agent/system/termination_log.h"
#include "cmd/check/node_checks.h"
#include "cmd/commands/answer.h"
#include "cmd/commands/build_facts.h"
#include "cmd/commands/command_table.h"
#include "cmd/commands/machine_in_its_place.h"
#include "cmd/commands/print_completion.h"
#include "cmd/commands/subcommand.h"
#include "cmd/launch/launch_options.h"
#include "cmd/manual/completion.h"
#include "cmd/manual/manual.h"
#include "cmd/options/options.h"
#include "cmd/options/test_times.h"
#include "cmd/options/values.h"
#include "cmd/plan/make_job_spec.h"
#include "cmd/plan/plan_json.h"
#include "proto/base/log.h"
#include "rendezvous/identity/key_source.h"

// NOLINTNEXTLINE(bugprone-reserved-identifier): in sanitizers' builds alone
extern "C" [[gnu::weak]] void __sanitizer_print_stack_trace();

namespace {

using namespace dtrun;

// If the user closed a standard stream, the next file that we open would get its number: a worker would read
// our socket as its input, and lines would be written to it. /dev/null takes that number first: reading it
// gives the end, writing to it an error. Runs before any other constructor, since gRPC's open files.
[[gnu::constructor(101)]] void hold_standard_streams() {
  int fd = 0;
  while ((fd = open("/dev/null", O_RDONLY)) >= 0 && fd <= STDERR_FILENO) {
  }
  close(fd);
}

// The kernel hands a container's first process no signal that it has no handler for. Until the agent reads
// signals, the plan may wait for a name or a file for seconds.
[[gnu::constructor(101)]] void end_when_told_as_pid_1() {
  if (getpid() != 1) return;
  for (const int number : {SIGTERM, SIGINT, SIGQUIT})
    std::signal(number, [](int told) { _exit(128 + told); });
}

// The exit code if the command line asks for text instead of a run.
std::optional<int> answer_instead(const cmd::Options& options) {
  if (options.flag("help")) {
    const cmd::Detail detail = options.short_help ? cmd::Detail::kShort : cmd::Detail::kLong;
    return cmd::answer(as_text(cmd::launcher_page(cmd::commands(), detail), cmd::terminal_columns()));
  }
  if (options.flag("version")) return cmd::answer(cmd::version() + "\n" + cmd::build_facts() + "\n");
  if (const auto shell = options.given("print_completion"))
    return cmd::print_completion(shell->value, cmd::quoted(*shell));
  return std::nullopt;
}

int refuse(const Status& status) {
  agent::write_termination_message(status.message());
  return cmd::fail(status);
}

int launch(const cmd::Options& options, const cmd::Environment& environment, const Times& times) {
  set_up_log("dtrun");
  if (const Status status = agent::check_memory_limit(); !status.ok()) return refuse(status);
  Result<JobSpec> spec = cmd::make_job_spec(options, cmd::machine_in_its_place(), environment, cmd::notice);
  if (!spec.ok()) return refuse(spec.status());
  spec.value().times = times;
  // No worker, and no other process that starts from here, may see the key.
  rendezvous::forget_key_variables();
  if (options.flag("dry_run")) return cmd::answer(cmd::plan_json(spec.value()));
  if (const Status status = cmd::check_node(spec.value(), cmd::notice); !status.ok()) return refuse(status);
  cmd::find_facts_for_others(&spec.value());
  cmd::find_writer(&spec.value());
  if (!spec.value().place.empty()) cmd::notice(spec.value().place);
  if (!spec.value().cpus_by.empty())
    cmd::notice("CPUs: " + std::to_string(spec.value().cpus) + ", by " + spec.value().cpus_by);
  if (!spec.value().device.empty()) cmd::notice("device: " + spec.value().device);
  if (!spec.value().gpus.empty()) cmd::notice("GPUs: " + gpus_text(spec.value().gpus) + ", one per worker");
  return agent::run(spec.value());
}

int launch_on_hosts(const cmd::Options& options, const std::vector<std::string>& words,
                    const cmd::Environment& environment, const Times& times) {
  Result<cmd::LaunchPlan> plan = cmd::make_launch_plan(options, words, environment, cmd::notice);
  if (!plan.ok()) return cmd::fail(plan.status());
  plan.value().times = times;
  if (options.flag("dry_run")) return cmd::answer(cmd::launch_json(plan.value()));
  return cmd::run_launch(std::move(plan).value());
}

int run(const std::vector<std::string>& arguments) {
  const cmd::Environment environment = [](const char* name) { return std::getenv(name); };
  cmd::set_colour(cmd::colour_at_first_sight(arguments, environment));
  if (!arguments.empty() && arguments[0] == cmd::kCompleteWord)
    return cmd::print_candidates({arguments.begin() + 1, arguments.end()});
  const Result<Times> times = cmd::test_times(environment);
  if (!times.ok()) return refuse(times.status());
  unsetenv(cmd::kTestTimes);  // for no worker, and for no other host
  const cmd::Command* command = arguments.empty() ? nullptr : cmd::find_command(arguments[0]);
  if (command != nullptr)
    return cmd::run_command(*command, {arguments.begin() + 1, arguments.end()}, environment, times.value());
  const Result<cmd::Options> options = cmd::parse_command_line(arguments, environment);
  if (!options.ok()) return refuse(options.status());
  if (const auto code = answer_instead(options.value())) return *code;
  const Status mistyped = cmd::check_not_subcommand(options.value(), cmd::command_names(), environment);
  if (!mistyped.ok()) return refuse(mistyped);
  if (cmd::names_hosts(options.value()))
    return launch_on_hosts(options.value(), arguments, environment, times.value());
  if (const Status status = cmd::check_no_hosts(options.value()); !status.ok()) return refuse(status);
  return launch(options.value(), environment, times.value());
}

// Memory that is refused on a thread of gRPC's, where nobody catches it, ends dtrun as on ours. The watchdog
// ends its workers.
void end_of_uncaught() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    std::fputs("dtrun: the machine refuses what dtrun needs: memory (see ulimit -a, and its container's)\n",
               stderr);
    std::_Exit(kExitOsError);
  } catch (...) {
  }
  std::abort();
}

// All that has to be kept is written by now, and the tear-down of gRPC in a process that ends has been seen
// to wait for ever. The sanitizers look for leaks in it.
int end_with(int code) {
  if (__sanitizer_print_stack_trace != nullptr) return code;
  std::fflush(nullptr);
  std::_Exit(code);
}

Status machine_refuses(const std::string& what) {
  return Status(kExitOsError,
                "the machine refuses what dtrun needs: " + what +
                    " (see ulimit -a, and the limits of its container, for processes, files and "
                    "memory)");
}

}  // namespace

// Our code throws nothing, but the standard library throws if the machine has no more threads or memory.
int main(int argc, char** argv) {
  std::set_terminate(end_of_uncaught);
  try {
    return end_with(run({argv + 1, argv + argc}));
  } catch (const std::system_error& error) {
    // glibc passes on what a filter of system calls says to clone3, unless that is "not there".
    if (error.code() == std::errc::operation_not_permitted)
      return cmd::fail(
          Status(kExitOsError,
                 "no thread can be started: a seccomp filter forbids clone3 (that of Docker "
                 "before 20.10.10 does; newer ones, or --security-opt seccomp=unconfined, do not)"));
    return cmd::fail(machine_refuses(error.code().message()));
  } catch (const std::bad_alloc&) {
    return cmd::fail(machine_refuses("memory"));
  } catch (const std::exception& error) {
    return cmd::fail(Status(kExitSoftware, std::string("a bug in dtrun: ") + error.what()));
  }
}
