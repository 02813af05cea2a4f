#include "cmd/launch/detached_runs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

#include "cmd/launch/spool.h"
#include "proto/base/descriptor.h"
#include "proto/base/ids.h"
#include "proto/json/json.h"

namespace dtrun::cmd {
namespace {

namespace fs = std::filesystem;
constexpr auto kKeepEndedRun = std::chrono::hours(30 * 24);

fs::path folder() { return state_folder() / "launches"; }

Json json_of(const DetachedRun& run) {
  Json hosts = Json::array();
  for (const DetachedHost& host : run.hosts)
    hosts.push_back({{"host", host.destination}, {"node", host.node}});
  return {{"run_id", run.run_id},
          {"ssh", run.ssh},
          {"accept_new_host_keys", run.accept_new_host_keys},
          {"directory", run.directory},
          {"hosts", std::move(hosts)},
          {"ended", run.ended}};
}

// Nothing if the file is not in the form of remember_run().
std::optional<DetachedRun> read_run(const fs::path& file) {
  std::ifstream stream(file);
  try {
    const Json json = parse_json(stream);
    DetachedRun run{.run_id = json.at("run_id"),
                    .ssh = json.at("ssh"),
                    .accept_new_host_keys = json.at("accept_new_host_keys"),
                    .directory = json.at("directory"),
                    .ended = json.at("ended")};
    for (const Json& host : json.at("hosts"))
      run.hosts.push_back({.destination = host.at("host"), .node = host.at("node")});
    const bool whole = !run.ssh.empty() && !run.hosts.empty();
    return whole ? std::optional(run) : std::nullopt;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
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
  if (Status status = check_can_remember(); !status.ok()) return status;
  const fs::path file = folder() / (run.run_id + ".json");
  const fs::path unfinished = file.string() + "." + random_id(4);
  const std::string text = json_text(json_of(run), 2) + "\n";
  const Descriptor fd(open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.open()) return errno_status(kExitCannotCreate, unfinished.string(), errno);
  const bool written = write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (written && rename(unfinished.c_str(), file.c_str()) == 0) return {};
  Status failure = errno_status(kExitCannotCreate, file.string(), errno);
  unlink(unfinished.c_str());
  return failure;
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
    plan.hosts.push_back({.destination = host.destination, .slots = 0});
    plan.settings.hosts.push_back(plan.hosts.back().name());
    plan.nodes.push_back(host.node);
  }
  plan.attach.set_run_id(run.run_id);
  plan.attach.set_follow(true);
  return plan;
}

}  // namespace dtrun::cmd
