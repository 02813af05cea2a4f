#include "cmd/check/between.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <utility>

#include "cmd/check/check_json.h"
#include "cmd/check/prober.h"
#include "cmd/machine/machine.h"
#include "cmd/options/option_table.h"
#include "cmd/options/values.h"
#include "cmd/plan/rendezvous_options.h"
#include "proto/base/descriptor.h"
#include "proto/core/exit_codes.h"
#include "proto/core/text.h"

namespace dtrun::cmd {
namespace {

// The text of the job's config, which other hosts need not have.
constexpr char kConfigVariable[] = "DTRUN_DOCTOR_CONFIG";
// In front of the report, in pieces that no console cuts. Rank 0's alone comes where all ranks share a
// terminal.
constexpr std::string_view kMark = "dtrun-doctor-report ";
constexpr std::size_t kPiece = 4096;

bool is_in(const OptionEntry& option, const char* group) { return std::string_view(option.group) == group; }

// Options by which nodes meet; the others are the prober's affair.
bool meets(const OptionEntry& option) {
  const std::string_view name = option.name;
  const bool ours = name == "rdzv_conf" || name == "rdzv_id" || name == "check" || name == "detach" ||
                    name.starts_with("http_");
  return !ours && (is_in(option, group::kMeeting) || is_in(option, group::kHosts) || name == "node_rank");
}

// What the prober must know of the job to look at its node.
bool concerns_node(const OptionEntry& option) {
  const std::string_view name = option.name;
  return (is_in(option, group::kJob) || is_in(option, group::kProgram)) && name != "nnodes" &&
         name != "node_rank" && name != "standalone";
}

void add_words(const Options& job, const std::function<bool(const OptionEntry&)>& is_wanted,
               std::vector<std::string>* words) {
  for (const OptionEntry& option : kOptions)
    if (const auto given = job.values.find(option.name); given != job.values.end() && is_wanted(option))
      for (const std::string& value : repeated_values(given->second))
        words->push_back("--" + std::string(option.name) + "=" + value);
}

std::string value_or(const Options& job, const char* name, const std::string& otherwise) {
  const auto given = job.values.find(name);
  return given == job.values.end() ? otherwise : given->second.value;
}

std::vector<std::string> command_of(const Meeting& meeting) {
  const Options& job = meeting.options;
  std::vector<std::string> words{kItself, "--nproc_per_node=1", "--log_prefix=", "--max_restarts=0",
                                 "--http_port=off"};
  add_words(job, meets, &words);
  const std::string wait = std::to_string(meeting.wait.count());
  const std::string conf = value_or(job, "rdzv_conf", "");
  // From one node on, so that those that came are looked at even if others did not.
  const bool elastic = value_or(job, "rdzv_backend", "dtrun") != "static" && !job.has("master_addr");
  if (meeting.nodes > 1)
    words.push_back("--nnodes=" + std::string(elastic ? "1:" : "") + std::to_string(meeting.nodes));
  words.push_back("--rdzv_conf=" + conf + (conf.empty() ? "" : ",") + "join_timeout=" + wait +
                  ",last_call_timeout=" + wait);
  words.push_back("--rdzv_id=" + meeting.run_id);
  // dtrun itself, on whichever host: a worker begins as a copy of its agent.
  words.insert(words.end(), {"--", kItself, "doctor", "--prober=" + std::to_string(meeting.nodes)});
  add_words(job, concerns_node, &words);
  words.insert(words.end(), job.program.begin(), job.program.end());
  return words;
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

}  // namespace

LookBetween look_between(const Meeting& meeting) {
  if (const auto& config = meeting.options.config_text) setenv(kConfigVariable, config->c_str(), 1);
  const auto [output, exit_code] = printed_by(command_of(meeting));
  std::string json;
  for (const std::string& line : split(output))
    if (line.starts_with(kMark)) json += line.substr(kMark.size());
  return {.report = report_of(json), .exit_code = exit_code};
}

int run_prober(Options job, int nodes, const Environment& environment) {
  // Others come from the environment, where the job's user may have set them.
  for (const OptionEntry& option : kOptions)
    if (!concerns_node(option)) job.values.erase(option.name);
  if (const char* const config = environment(kConfigVariable)) job.config_text = config;
  const char* const world_size = environment("WORLD_SIZE");
  const int came = world_size != nullptr ? std::atoi(world_size) : 1;
  const CheckedJob checked = plan_job(std::move(job), this_machine(), environment, std::max(nodes, came));
  const Result<std::string> report = probe_between(checked, nodes);
  if (!report.ok()) {
    std::fprintf(stderr, "dtrun doctor: %s\n", report.status().message().c_str());
    return report.status().exit_code();
  }
  const char* const rank = environment("RANK");
  const bool shares_terminal = nodes == 0;
  const bool speaks = !shares_terminal || (rank != nullptr && std::string_view(rank) == "0");
  for (std::size_t at = 0; speaks && at < report.value().size(); at += kPiece)
    std::printf("%s%s\n", std::string(kMark).c_str(), report.value().substr(at, kPiece).c_str());
  return kExitOk;
}

}  // namespace dtrun::cmd
