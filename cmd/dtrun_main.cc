// dtrun: reads the command line, makes the plan, runs the agent.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "agent/agent.h"
#include "cmd/commands/answer.h"
#include "cmd/commands/status_command.h"
#include "cmd/commands/store_command.h"
#include "cmd/options/options.h"
#include "cmd/plan/launch_plan.h"
#include "cmd/plan/plan_json.h"
#include "proto/base/log.h"

namespace {

using namespace dtrun;

int terminal_columns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// A config may have several faults, one a line.
int fail(const Status& status) {
  std::istringstream lines(status.message());
  for (std::string line; std::getline(lines, line);) std::fprintf(stderr, "dtrun: %s\n", line.c_str());
  return status.exit_code();
}

// Whoever closed a standard stream gets its end or an error there, and not what opens a file first: a worker
// would read a socket of ours, and lines would be written to it. Before any other constructor, since gRPC's
// open files.
[[gnu::constructor(101)]] void hold_standard_streams() {
  int fd = 0;
  while ((fd = open("/dev/null", O_RDONLY)) >= 0 && fd <= STDERR_FILENO) {
  }
  close(fd);
}

int run(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const cmd::Environment environment = [](const char* name) { return std::getenv(name); };
  if (!arguments.empty() && (arguments[0] == "store" || arguments[0] == "status")) {
    const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
    return arguments[0] == "store" ? cmd::run_store(rest) : cmd::run_status(rest, environment);
  }
  Result<cmd::ParsedCommandLine> parsed = cmd::parse_command_line(arguments, environment, terminal_columns());
  if (!parsed.ok()) return fail(parsed.status());
  if (parsed.value().answer) return cmd::answer(parsed.value().answer->text);

  set_up_log("dtrun");
  const auto notice = [](const std::string& text) { std::fprintf(stderr, "dtrun: %s\n", text.c_str()); };
  Result<JobSpec> spec = cmd::make_job_spec(parsed.value().options, cmd::this_machine(), environment, notice);
  if (!spec.ok()) return fail(spec.status());
  if (parsed.value().options.flag("dry_run")) return cmd::answer(cmd::plan_json(spec.value()));
  if (const auto* trainer = std::get_if<BuiltinTrainer>(&spec.value().program);
      trainer && access(trainer->worker_binary.c_str(), X_OK) != 0) {
    return fail(errno_status(kExitSoftware, trainer->worker_binary.string(), errno)
                    .within("the built-in trainer must lie beside dtrun"));
  }
  return agent::run(spec.value());
}

}  // namespace

// Nothing of ours throws, but the standard library does where the machine gives no more threads or memory.
int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::system_error& error) {
    return fail(Status(kExitUnavailable, std::string("the machine refuses what dtrun needs: ") +
                                             error.code().message() +
                                             " (see ulimit -a, and the limits of its "
                                             "container, for processes, files and memory)"));
  } catch (const std::exception& error) {
    return fail(Status(kExitSoftware, std::string("a bug in dtrun: ") + error.what()));
  }
}
