#include "agent/health/worker_usage.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "proto/base/descriptor.h"
#include "proto/base/text_in.h"
#include "proto/core/control_group.h"
#include "proto/core/number.h"

namespace dtrun::agent {
namespace {

namespace fs = std::filesystem;

// The begin of a file of /proc, which tells all that is wanted of it; empty if there is none.
std::string head_of(const fs::path& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 1024> text;
  const ssize_t n = file.open() ? read(file.get(), text.data(), text.size()) : 0;
  return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(0, n))};
}

// The number after `name` at the begin of a line; 0 if there is none.
std::int64_t number_of(std::string_view text, std::string_view name) {
  for (std::size_t at = 0; (at = text.find(name, at)) != std::string_view::npos; at += name.size())
    if (at == 0 || text[at - 1] == '\n')
      return parse_leading_number<std::int64_t>(text.substr(at + name.size())).value_or(0);
  return 0;
}

fs::path folder_of(pid_t pid) { return "/proc/" + std::to_string(pid); }

// /proc/PID/schedstat is that of one thread.
std::int64_t run_delay_of(const ProcessStat& process) {
  const fs::path folder = folder_of(process.pid);
  if (process.threads <= 1) return run_delay(head_of(folder / "schedstat"));
  std::int64_t sum = 0;
  DIR* const tasks = opendir((folder / "task").c_str());
  if (tasks == nullptr) return 0;
  while (const dirent* entry = readdir(tasks))
    if (entry->d_name[0] != '.') sum += run_delay(head_of(folder / "task" / entry->d_name / "schedstat"));
  closedir(tasks);
  return sum;
}

double ticks_per_second() {
  static const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  return ticks;
}

// A number that fell was that of processes which have ended.
void keep(std::int64_t now, std::int64_t& newest, std::int64_t& ended) {
  ended += std::max<std::int64_t>(0, newest - now);
  newest = now;
}

}  // namespace

std::int64_t run_delay(const std::string& text) {
  std::istringstream numbers(text);
  std::int64_t ran = 0, waited = 0;
  return numbers >> ran >> waited ? waited : 0;
}

double throttled_seconds(const std::string& text) {
  return static_cast<double>(number_of(text, "throttled_usec ")) / 1e6 +
         static_cast<double>(number_of(text, "throttled_time ")) / 1e9;
}

std::optional<rendezvous::Neighbour> neighbour_of(const cpu_set_t& cpus, const ProcessTable& before,
                                                  const ProcessTable& now,
                                                  const std::map<pid_t, GroupUsage>& usages, double seconds) {
  constexpr double kLeast = 0.01;
  std::set<pid_t> ours{getpid()};
  for (const auto& [leader, usage] : usages)
    for (const ProcessStat& member : usage.members) ours.insert(member.pid);
  rendezvous::Neighbour most;
  for (const auto& [pid, process] : now) {
    const auto known = before.find(pid);
    if (known == before.end() || known->second.start_ticks != process.start_ticks || ours.contains(pid) ||
        process.processor < 0 || !CPU_ISSET(process.processor, &cpus))
      continue;
    const double used =
        static_cast<double>(process.own_ticks - known->second.own_ticks) / ticks_per_second() / seconds;
    if (used > most.cpus) most = {.pid = pid, .name = process.name, .cpus = used};
  }
  return most.cpus >= kLeast ? std::optional(most) : std::nullopt;
}

WorkerUsages::WorkerUsages() : mountinfo_(text_in("/proc/self/mountinfo")), looked_at_(Clock::now()) {}

const std::map<pid_t, WorkerUsage>& WorkerUsages::look(const std::vector<pid_t>& leaders,
                                                       Clock::time_point now) {
  if (now - looked_at_ < kGap) return newest_;
  since_look_ = std::chrono::duration<double>(now - looked_at_).count();
  looked_at_ = now;
  const bool known =
      std::ranges::all_of(leaders, [this](pid_t leader) { return leader <= 0 || seen_.contains(leader); });
  if (!known || looks_++ % kLooksPerSearch == 0) search(leaders, now);
  newest_.clear();
  for (auto& [leader, seen] : seen_) newest_[leader] = account_of(leader, seen);
  return newest_;
}

void WorkerUsages::search(const std::vector<pid_t>& leaders, Clock::time_point now) {
  std::vector<pid_t> running;
  std::ranges::copy_if(leaders, std::back_inserter(running), [](pid_t pid) { return pid > 0; });
  std::map<pid_t, Seen> seen;
  ProcessTable table = all_processes();
  const std::map<pid_t, GroupUsage> usages = usage_of_groups(running, table);
  const double seconds = std::chrono::duration<double>(now - found_at_).count();
  for (const auto& [leader, usage] : usages) {
    seen[leader] = std::move(seen_[leader]);
    seen[leader].members.clear();
    for (const ProcessStat& member : usage.members) seen[leader].members.push_back(member.pid);
    cpu_set_t cpus;
    if (!found_.empty() && sched_getaffinity(leader, sizeof cpus, &cpus) == 0)
      seen[leader].neighbour = neighbour_of(cpus, found_, table, usages, seconds);
  }
  seen_ = std::move(seen);
  found_ = std::move(table);
  found_at_ = now;
}

WorkerUsage WorkerUsages::account_of(pid_t leader, Seen& seen) const {
  static const std::int64_t page = sysconf(_SC_PAGESIZE);
  Counters now;
  WorkerUsage usage;
  for (const pid_t pid : seen.members) {
    const fs::path folder = folder_of(pid);
    const auto stat = parse_stat(head_of(folder / "stat"));
    if (!stat) continue;
    if (pid == leader && (stat->state == 'T' || stat->state == 't')) seen.stopped += since_look_;
    now.cpu_ticks += stat->cpu_ticks;
    now.major_faults += stat->major_faults;
    now.run_delay += run_delay_of(*stat);
    const std::string io = head_of(folder / "io");
    now.read_bytes += number_of(io, "rchar: ");
    now.written_bytes += number_of(io, "wchar: ");
    usage.resident_bytes += stat->resident_pages * page;
  }
  for (std::int64_t Counters::*one : {&Counters::cpu_ticks, &Counters::run_delay, &Counters::major_faults,
                                      &Counters::read_bytes, &Counters::written_bytes})
    keep(now.*one, seen.newest.*one, seen.ended.*one);
  look_at_group(leader, seen);
  const auto total = [&seen](std::int64_t Counters::*one) { return seen.newest.*one + seen.ended.*one; };
  usage.cpu = static_cast<double>(total(&Counters::cpu_ticks)) / ticks_per_second();
  usage.cpu_wait = static_cast<double>(total(&Counters::run_delay)) / 1e9;
  usage.throttled = seen.throttled;
  usage.stopped = seen.stopped;
  usage.neighbour = seen.neighbour;
  usage.major_faults = total(&Counters::major_faults);
  usage.read_bytes = total(&Counters::read_bytes);
  usage.written_bytes = total(&Counters::written_bytes);
  return usage;
}

// Each group above has a quota of its own. A worker that is moved begins anew with the other group's.
void WorkerUsages::look_at_group(pid_t leader, Seen& seen) const {
  std::string cgroup = text_in(folder_of(leader) / "cgroup");
  const bool moved = cgroup != seen.cgroup;
  if (moved) seen.groups = control_groups("cpu", cgroup, mountinfo_);
  seen.cgroup = std::move(cgroup);
  double throttled = 0;
  for (const ControlGroup& group : seen.groups)
    throttled += throttled_seconds(head_of(group.folder / "cpu.stat"));
  if (!moved) seen.throttled += std::max(0.0, throttled - seen.group_throttled);
  seen.group_throttled = throttled;
}

}  // namespace dtrun::agent
