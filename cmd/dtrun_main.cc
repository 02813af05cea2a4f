// dtrun: reads the command line, makes the plan, runs the agent.
#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "agent/agent.h"
#include "cmd/launch_plan.h"
#include "cmd/options.h"
#include "proto/log.h"

namespace {

using namespace dtrun;

cmd::Machine this_machine() {
  cmd::Machine machine;
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) machine.cpus = CPU_COUNT(&cpus);
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  machine.worker_binary = (self.parent_path() / "dtrun-worker").string();
  return machine;
}

int fail(const Status& status) {
  std::fprintf(stderr, "dtrun: %s\n", status.message().c_str());
  return status.exit_code();
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const cmd::Environment environment = [](const char* name) { return std::getenv(name); };
  Result<cmd::ParsedCommandLine> parsed = cmd::parse_command_line(arguments, environment);
  if (!parsed.ok()) return fail(parsed.status());
  if (parsed.value().answer) {
    std::fputs(parsed.value().answer->text.c_str(), stdout);
    return kExitOk;
  }

  set_up_log("dtrun");
  const auto notice = [](const std::string& text) { std::fprintf(stderr, "dtrun: %s\n", text.c_str()); };
  Result<JobSpec> spec = cmd::make_job_spec(parsed.value().options, this_machine(), environment, notice);
  if (!spec.ok()) return fail(spec.status());
  if (parsed.value().options.flag("dry_run")) {
    std::fputs(cmd::describe_plan(spec.value()).c_str(), stdout);
    return kExitOk;
  }
  if (const auto* trainer = std::get_if<BuiltinTrainer>(&spec.value().program);
      trainer && access(trainer->worker_binary.c_str(), X_OK) != 0) {
    return fail(errno_status(kExitSoftware, trainer->worker_binary.string(), errno)
                    .within("the built-in trainer must lie beside dtrun"));
  }
  return agent::run(spec.value());
}
