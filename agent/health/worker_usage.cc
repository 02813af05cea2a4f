#include "agent/health/worker_usage.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "agent/health/group_usage.h"
#include "proto/base/descriptor.h"
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

const std::map<pid_t, WorkerUsage>& WorkerUsages::look(const std::vector<pid_t>& leaders,
                                                       Clock::time_point now) {
  if (now - looked_at_ < kGap) return newest_;
  looked_at_ = now;
  const bool known =
      std::ranges::all_of(leaders, [this](pid_t leader) { return leader <= 0 || seen_.contains(leader); });
  if (!known || looks_++ % kLooksPerSearch == 0) search(leaders);
  newest_.clear();
  for (auto& [leader, seen] : seen_) newest_[leader] = account_of(seen);
  return newest_;
}

void WorkerUsages::search(const std::vector<pid_t>& leaders) {
  std::vector<pid_t> running;
  std::ranges::copy_if(leaders, std::back_inserter(running), [](pid_t pid) { return pid > 0; });
  std::map<pid_t, Seen> seen;
  for (const auto& [leader, usage] : usage_of_groups(running)) {
    seen[leader] = std::move(seen_[leader]);
    seen[leader].members.clear();
    for (const ProcessStat& member : usage.members) seen[leader].members.push_back(member.pid);
  }
  seen_ = std::move(seen);
}

WorkerUsage WorkerUsages::account_of(Seen& seen) {
  static const std::int64_t page = sysconf(_SC_PAGESIZE);
  Counters now;
  WorkerUsage usage;
  for (const pid_t pid : seen.members) {
    const fs::path folder = folder_of(pid);
    const auto stat = parse_stat(head_of(folder / "stat"));
    if (!stat) continue;
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
  const auto total = [&seen](std::int64_t Counters::*one) { return seen.newest.*one + seen.ended.*one; };
  usage.cpu = static_cast<double>(total(&Counters::cpu_ticks)) / ticks_per_second();
  usage.cpu_wait = static_cast<double>(total(&Counters::run_delay)) / 1e9;
  usage.major_faults = total(&Counters::major_faults);
  usage.read_bytes = total(&Counters::read_bytes);
  usage.written_bytes = total(&Counters::written_bytes);
  return usage;
}

}  // namespace dtrun::agent
