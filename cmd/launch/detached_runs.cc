#include "cmd/launch/detached_runs.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>

#include "cmd/launch/detached_files.h"
#include "proto/base/text_in.h"
#include "proto/json/fields.h"

namespace dtrun::cmd {

DTRUN_JSON(DetachedHost, host, node)
DTRUN_JSON(DetachedRun, run_id, ssh, accept_new_host_keys, directory, hosts, ended)

namespace {

namespace fs = std::filesystem;
constexpr auto kKeepEndedRun = std::chrono::hours(30 * 24);

fs::path folder() { return state_folder() / "launches"; }

// Nothing if the file is not in the form of remember_run().
std::optional<DetachedRun> read_run(const fs::path& file) {
  std::optional<DetachedRun> run = parsed<DetachedRun>(text_in(file));
  if (run && (run->ssh.empty() || run->hosts.empty())) run.reset();
  return run;
}

bool is_old(const fs::path& file) {
  std::error_code error;
  const auto written = fs::last_write_time(file, error);
  return !error && fs::file_time_type::clock::now() - written > kKeepEndedRun;
}

std::string names_of(const std::vector<DetachedRun>& runs) {
  std::string names;
  for (const DetachedRun& run : runs)
    names += (names.empty() ? "" : ", ") + run.run_id + (run.ended ? " (ended)" : "");
  return names.empty() ? "none was detached from here" : "there are: " + names;
}

}  // namespace

Status check_can_remember() {
  Status status = make_private_folder(state_folder());
  return status.ok() ? make_private_folder(folder()) : status;
}

Status remember_run(const DetachedRun& run) {
  RETURN_IF_ERROR(check_can_remember());
  return replace_text(folder() / (run.run_id + ".json"), json_text(run, 2) + "\n");
}

std::vector<DetachedRun> detached_runs() {
  std::vector<DetachedRun> runs;
  std::vector<fs::path> old;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder(), error)) {
    if (entry.path().extension() != ".json") continue;
    std::optional<DetachedRun> run = read_run(entry.path());
    if (run && run->ended && is_old(entry.path()))
      old.push_back(entry.path());
    else if (run)
      runs.push_back(*std::move(run));
  }
  for (const fs::path& file : old) unlink(file.c_str());
  std::ranges::sort(runs, {}, &DetachedRun::run_id);
  return runs;
}

Result<DetachedRun> find_detached_run(const std::string& run_id) {
  const std::vector<DetachedRun> runs = detached_runs();
  std::vector<DetachedRun> found;
  for (const DetachedRun& run : runs)
    if (run_id.empty() ? !run.ended : run.run_id == run_id) found.push_back(run);
  if (found.size() == 1) return found.front();
  if (found.size() > 1) return Status(kExitUsage, "several detached runs, name one; " + names_of(runs));
  const std::string what = run_id.empty() ? "no detached run goes on" : "no detached run " + run_id;
  return Status(kExitUnavailable, what + "; " + names_of(runs));
}

LaunchPlan plan_to_come_back(const DetachedRun& run, Purpose purpose) {
  LaunchPlan plan;
  // If the directory is gone, only a relative name among these words would miss it, and then says so.
  [[maybe_unused]] const int result = chdir(run.directory.c_str());
  plan.ssh = run.ssh;
  plan.accept_new_host_keys = run.accept_new_host_keys;
  plan.is_ssh = fs::path(plan.ssh.front()).filename() == "ssh";
  plan.settings.purpose = purpose;
  plan.settings.run_id = run.run_id;
  for (const DetachedHost& host : run.hosts) {
    plan.hosts.push_back({.destination = host.host, .slots = 0});
    plan.settings.hosts.push_back(plan.hosts.back().name());
    plan.nodes.push_back(host.node);
  }
  plan.attach.set_run_id(run.run_id);
  plan.attach.set_follow(true);
  return plan;
}

}  // namespace dtrun::cmd
