#include "cmd/launch/launch_options.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

#include "agent/system/own_environment.h"
#include "cmd/hosts/host_filter.h"
#include "cmd/hosts/hostfile.h"
#include "cmd/hosts/travelling_environment.h"
#include "cmd/options/values.h"
#include "cmd/plan/make_job_spec.h"
#include "cmd/plan/rendezvous_options.h"
#include "proto/base/ids.h"
#include "proto/core/exit_codes.h"
#include "proto/json/json.h"
#include "rendezvous/identity/job_key.h"

namespace dtrun::cmd {
namespace {

// Options that place one node by hand.
constexpr OptionName kOfOneNode[] = {"standalone",  "node_rank",  "rdzv_endpoint",
                                     "master_addr", "local_addr", "topology"};

constexpr std::size_t kLargestFile = 8u << 20;

Result<std::string> read_file(const Given& given) {
  std::ifstream file(given.value, std::ios::binary);
  if (!file) return errno_status(kExitNoInput, quoted(given), errno);
  std::string text(kLargestFile + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (file.bad()) return errno_status(kExitNoInput, quoted(given), errno);
  if (text.size() > kLargestFile) return usage(quoted(given) + ": larger than 8 MiB");
  return text;
}

std::string text_of(const Options& options, OptionName name) {
  const auto given = options.given(name);
  return given ? given->value : "";
}

Result<std::vector<Host>> read_hosts(const Options& options) {
  const auto file = options.given("hostfile"), list = options.given("hosts");
  if (file && list) return usage(file->source + " and " + list->source + " exclude each other");
  Result<std::vector<Host>> hosts = usage("no hosts");
  if (list) {
    hosts = parse_host_list(list->value, list->source);
  } else {
    ASSIGN_OR_RETURN(std::string text, read_file(*file));
    hosts = parse_hostfile(text, file->value);
  }
  if (!hosts.ok()) return hosts;
  return filter_hosts(std::move(hosts).value(), text_of(options, "include"), text_of(options, "exclude"));
}

Status read_nodes(const Options& options, LaunchPlan* plan) {
  LaunchSettings& settings = plan->settings;
  const int hosts = static_cast<int>(plan->hosts.size());
  for (const Host& host : plan->hosts) settings.hosts.push_back(host.name());
  settings.min_nodes = settings.max_nodes = hosts;
  if (options.flag("detach")) settings.purpose = Purpose::kDetach;
  if (options.flag("check")) settings.purpose = Purpose::kCheck;
  if (const auto given = options.given("nnodes")) {
    ASSIGN_OR_RETURN(const NodeCount nodes, parse_nodes(*given));
    if (nodes.min > hosts)
      return usage(quoted(*given) + ": " + std::to_string(hosts) + (hosts == 1 ? " host is" : " hosts are") +
                   " named");
    settings.min_nodes = nodes.min;
    settings.max_nodes = nodes.max;
  }
  if (settings.max_nodes > 1)
    plan->job.set_nodes(std::to_string(settings.min_nodes) + ":" + std::to_string(settings.max_nodes));
  return {};
}

Status read_environment(const Options& options, const Notice& notice, launch::Job* job) {
  std::vector<EnvironmentRule> rules;
  if (const auto file = options.given("env_file")) {
    ASSIGN_OR_RETURN(const std::string text, read_file(*file));
    ASSIGN_OR_RETURN(rules, parse_environment_file(text, file->value));
  }
  if (const auto given = options.given("export")) {
    for (const std::string& value : repeated_values(*given)) {
      ASSIGN_OR_RETURN(EnvironmentRule rule, parse_environment_rule(value));
      rules.push_back(std::move(rule));
    }
  }
  const std::vector<std::string> own = agent::own_environment();
  for (const std::string& name : not_set_here(own, rules))
    notice(name + " is not set here, so it does not travel");
  for (const std::string& entry : travelling_environment(own, rules)) job->add_environment(entry);
  return {};
}

Status read_directory(const Options& options, launch::Job* job) {
  if (const auto given = options.given("chdir")) {
    if (!given->value.starts_with("/")) return usage(quoted(*given) + ": expected an absolute path");
    job->set_directory(given->value);
    return {};
  }
  std::error_code error;
  job->set_directory(std::filesystem::current_path(error).string());
  if (error) return Status(kExitNoInput, "the current directory: " + error.message());
  return {};
}

Status read_ssh(const Options& options, LaunchPlan* plan) {
  plan->accept_new_host_keys = options.flag("accept_new_host_keys");
  std::istringstream words(text_of(options, "ssh"));
  for (std::string word; words >> word;) plan->ssh.push_back(word);
  if (plan->ssh.empty()) plan->ssh.emplace_back("ssh");
  plan->is_ssh = std::filesystem::path(plan->ssh.front()).filename() == "ssh";
  if (const auto given = options.given("ssh_timeout")) {
    ASSIGN_OR_RETURN(const auto time, parse_seconds(*given));
    if (time < std::chrono::seconds(3)) return usage(quoted(*given) + ": expected 3 s or more");
    plan->settings.answer_time = time.count();
  }
  if (!plan->is_ssh && plan->accept_new_host_keys)
    return usage("--accept_new_host_keys is for ssh, not for " + quoted(*options.given("ssh")));
  return {};
}

// Read here so that a mistake in them is found here, and once.
Status read_job(Options options, LaunchPlan* plan) {
  if (options.program.empty()) return nothing_to_run(options);
  plan->settings.all_meet = names_config(options);
  plan->settings.fails_over = !forbids_failover(options);
  plan->gives_input = !names_config(options) && plan->settings.purpose == Purpose::kRun;
  if (!names_config(options)) return {};
  ASSIGN_OR_RETURN(const worker::JobConfig config, settle_config(&options));
  plan->job.set_config(*options.config_text);
  return {};
}

Status check_options(const Options& options, bool one_host) {
  for (const OptionName name : kOfOneNode) {
    const auto given = options.given(name);
    const bool harmless = one_host && std::string_view(name.text()) == "standalone";
    if (given && !harmless)
      return usage(given->source + " is for one node's own command line; with " +
                   (options.given("hostfile") ? "--hostfile" : "--hosts") + " dtrun places the nodes itself");
  }
  const auto backend = options.given("rdzv_backend");
  if (!backend || backend->value == "dtrun" || backend->value == "c10d") return {};
  return usage(quoted(*backend) + ": with named hosts the nodes meet at dtrun's own coordinator");
}

}  // namespace

bool names_hosts(const Options& options) { return options.has("hostfile") || options.has("hosts"); }

Status check_no_hosts(const Options& options) {
  for (const OptionEntry& entry : kOptions) {
    const auto found = options.values.find(entry.name);
    if (std::string_view(entry.group) != group::kHosts || found == options.values.end()) continue;
    const Given& given = found->second;
    const bool matters = given.source.starts_with("-") || options.flag("check") || options.flag("detach");
    const bool detaches = std::string_view(entry.name) == "detach";
    if (matters && !(entry.is_flag() && given.value == "false"))
      return usage(given.source +
                   " is for a job on named hosts; -H localhost names this one, where sshd runs" +
                   (detaches ? "; without it: setsid -f dtrun … >LOG 2>&1" : ""));
  }
  return {};
}

Result<LaunchPlan> make_launch_plan(const Options& options, const std::vector<std::string>& words,
                                    const Environment& environment, const Notice& notice) {
  LaunchPlan plan;
  ASSIGN_OR_RETURN(plan.hosts, read_hosts(options));
  Status status = check_options(options, plan.hosts.size() == 1);
  if (status.ok()) status = read_nodes(options, &plan);
  if (status.ok()) status = read_ssh(options, &plan);
  if (status.ok()) status = read_directory(options, &plan.job);
  if (status.ok()) status = read_environment(options, notice, &plan.job);
  if (status.ok()) status = read_job(options, &plan);
  if (!status.ok()) return status;
  for (const std::string& word : words) plan.job.add_words(word);
  const auto run_id = options.given("rdzv_id");
  if (run_id) RETURN_IF_ERROR(check_run_id(*run_id));
  plan.settings.run_id = run_id ? run_id->value : random_id(4);
  plan.job.set_run_id(plan.settings.run_id);
  const bool plain = options.flag("insecure");
  if (!plan.job.nodes().empty() && !plain) plan.job.set_key(rendezvous::JobKey::random().text());
  if (const auto file = options.given("key_file"))
    notice(file->source + " has no effect: the launcher makes a key for the job");
  plan.output.colour = colour_at_first_sight(words, environment);
  plan.workers_are_given = options.has("nproc_per_node");
  plan.doctor = doctor_line(options);
  return plan;
}

std::string launch_json(const LaunchPlan& plan) {
  Json hosts = Json::array();
  for (const Host& host : plan.hosts) {
    Json one{{"host", host.destination}};
    if (host.slots > 0) one["slots"] = host.slots;
    if (!host.gpus.empty()) one["gpus"] = host.gpus;
    hosts.push_back(std::move(one));
  }
  Json environment = Json::array();
  for (const std::string& entry : plan.job.environment()) environment.push_back(masked(entry));
  const Json json{{"hosts", std::move(hosts)},
                  {"min_nodes", plan.settings.min_nodes},
                  {"max_nodes", plan.settings.max_nodes},
                  {"ssh", plan.ssh},
                  {"rdzv_id", plan.job.run_id()},
                  {"directory", plan.job.directory()},
                  {"words", std::vector<std::string>(plan.job.words().begin(), plan.job.words().end())},
                  {"environment", std::move(environment)}};
  return json_text(json, 2) + "\n";
}

}  // namespace dtrun::cmd
