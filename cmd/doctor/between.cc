#include "cmd/doctor/between.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "cmd/doctor/prober.h"
#include "cmd/doctor/report_json.h"
#include "cmd/machine/machine.h"
#include "cmd/options/option_table.h"
#include "cmd/options/values.h"
#include "cmd/plan/rendezvous_options.h"
#include "proto/base/clock.h"
#include "proto/base/descriptor.h"
#include "proto/core/exit_codes.h"
#include "proto/core/text.h"

namespace dtrun::doctor {
namespace {

// The prober's job, from look_between() to all nodes.
constexpr char kVariable[] = "DTRUN_DOCTOR";
// In front of the report, in pieces that no console cuts. Rank 0's alone comes where all ranks share a
// terminal.
constexpr std::string_view kMark = "dtrun-doctor-report ";
constexpr std::size_t kPiece = 4096;

bool is_in(const cmd::OptionEntry& option, const char* group) {
  return std::string_view(option.group) == group;
}

// Options by which nodes meet; the rest of the job's is the prober's affair.
std::vector<std::string> meeting_words(const Meeting& meeting) {
  std::vector<std::string> words;
  for (const cmd::OptionEntry& option : cmd::kOptions) {
    const auto given = meeting.options.values.find(option.name);
    const std::string_view name = option.name;
    const bool meets =
        is_in(option, cmd::group::kMeeting) || is_in(option, cmd::group::kHosts) || name == "node_rank";
    const bool ours = name == "rdzv_conf" || name == "rdzv_id" || name == "check" || name == "detach" ||
                      name.starts_with("http_");
    if (given == meeting.options.values.end() || !meets || ours) continue;
    for (const std::string& value : cmd::repeated_values(given->second))
      words.push_back("--" + std::string(name) + "=" + value);
  }
  return words;
}

std::string value_or(const Meeting& meeting, const char* name, const std::string& otherwise) {
  const auto given = meeting.options.values.find(name);
  return given == meeting.options.values.end() ? otherwise : given->second.value;
}

std::vector<std::string> command_of(const Meeting& meeting) {
  std::vector<std::string> words = meeting_words(meeting);
  words.insert(words.begin(),
               {cmd::kItself, "--nproc_per_node=1", "--log_prefix=", "--max_restarts=0", "--http_port=off"});
  const std::string wait = std::to_string(meeting.wait.count());
  const std::string conf = value_or(meeting, "rdzv_conf", "");
  // From one node on, so that those that came are looked at even if others did not.
  const bool elastic =
      value_or(meeting, "rdzv_backend", "dtrun") != "static" && !meeting.options.has("master_addr");
  if (meeting.nodes > 1)
    words.push_back("--nnodes=" + std::string(elastic ? "1:" : "") + std::to_string(meeting.nodes));
  words.push_back("--rdzv_conf=" + conf + (conf.empty() ? "" : ",") + "join_timeout=" + wait +
                  ",last_call_timeout=" + wait);
  words.push_back("--rdzv_id=" + meeting.run_id);
  // dtrun itself, on whichever host: a worker begins as a copy of its agent.
  words.insert(words.end(), {"--", cmd::kItself, "doctor", "--prober"});
  return words;
}

std::string job_text(const Meeting& meeting) {
  nlohmann::json json{
      {"nodes", meeting.nodes}, {"program", meeting.options.program}, {"options", nlohmann::json::object()}};
  if (meeting.options.config_text) json["config"] = *meeting.options.config_text;
  for (const cmd::OptionEntry& option : cmd::kOptions) {
    const auto given = meeting.options.values.find(option.name);
    const bool of_job = is_in(option, cmd::group::kJob) || is_in(option, cmd::group::kProgram);
    const std::string_view name = option.name;
    if (given != meeting.options.values.end() && of_job && name != "nnodes" && name != "node_rank" &&
        name != "standalone")
      json["options"][option.name] = given->second.value;
  }
  if (!meeting.options.has("hostfile") && !meeting.options.has("hosts")) json["began_at"] = steady_seconds();
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Its standard output, and its exit code.
std::pair<std::string, int> printed_by(const std::vector<std::string>& command) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {"", kExitOsError};
  const Descriptor in(ends[0]);
  Descriptor out(ends[1]);
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = getpid(), pid = fork();
  if (pid == 0) {
    // A doctor that is killed leaves no run behind.
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() == parent && dup2(out.get(), STDOUT_FILENO) >= 0) execv(argv[0], argv.data());
    _exit(kExitOsError);
  }
  if (pid < 0) return {"", kExitOsError};
  out.reset();
  std::string text;
  char part[4096];
  for (ssize_t n = 1; n != 0;) {
    n = read(in.get(), part, sizeof part);
    if (n < 0 && errno != EINTR) break;
    text.append(part, static_cast<std::size_t>(n > 0 ? n : 0));
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return {text, WIFEXITED(status) ? WEXITSTATUS(status) : exit_code_of_signal(WTERMSIG(status))};
}

std::optional<Report> report_in(const std::string& output) {
  std::string json;
  for (const std::string& line : split(output))
    if (line.starts_with(kMark)) json += line.substr(kMark.size());
  return report_of(json);
}

// Fills in what look_between() told. EX_SOFTWARE if it did not.
Status read_job(const std::string& text, cmd::Options* options, int* nodes, double* began_at) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    *nodes = json.at("nodes");
    *began_at = json.value("began_at", steady_seconds());
    options->program = json.at("program").get<std::vector<std::string>>();
    if (json.contains("config")) options->config_text = json.at("config").get<std::string>();
    for (const auto& [name, value] : json.at("options").items())
      options->values[name] = {.value = value.get<std::string>(), .source = "--" + name};
    return {};
  } catch (const nlohmann::json::exception& error) {
    return Status(kExitSoftware, std::string(kVariable) + ": " + error.what());
  }
}

}  // namespace

Look look_between(const Meeting& meeting) {
  setenv(kVariable, job_text(meeting).c_str(), 1);
  const auto [output, exit_code] = printed_by(command_of(meeting));
  return {.report = report_in(output), .exit_code = exit_code};
}

int run_prober(const cmd::Environment& environment) {
  cmd::Options options;
  int nodes = 0;
  double began_at = 0;
  const char* const text = environment(kVariable);
  Status status = read_job(text != nullptr ? text : "", &options, &nodes, &began_at);
  if (status.ok()) {
    Job job = plan_job(options, cmd::this_machine(), environment);
    if (job.spec && nodes > 1) job.spec->nodes = {.min = nodes, .max = nodes};
    const Result<Report> report = probe_between(job, nodes, began_at);
    if (report.ok()) {
      const char* const rank = std::getenv("RANK");
      const bool shares_terminal = nodes == 0;
      const bool speaks = !shares_terminal || (rank != nullptr && std::string_view(rank) == "0");
      const std::string json = report_json(report.value(), false);
      for (std::size_t at = 0; speaks && at < json.size(); at += kPiece)
        std::printf("%s%s\n", std::string(kMark).c_str(), json.substr(at, kPiece).c_str());
      return kExitOk;
    }
    status = report.status();
  }
  std::fprintf(stderr, "dtrun doctor: %s\n", status.message().c_str());
  return status.exit_code();
}

}  // namespace dtrun::doctor
