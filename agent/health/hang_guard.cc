#include "agent/health/hang_guard.h"

#include <algorithm>

#include "agent/health/group_usage.h"

namespace dtrun::agent {
namespace {

std::string seconds_text(Millis ms) {
  const std::int64_t tenths = (ms + 50) / 100;
  return std::to_string(tenths / 10) + (tenths % 10 == 0 ? "" : "." + std::to_string(tenths % 10)) + " s";
}

std::string what_is_wrong(const HungWorker& hung, const HangSettings& settings) {
  return hung.stalled ? "no progress for " + seconds_text(settings.stall_timeout) +
                            ": no worker of this node wrote or computed anything"
                      : "no progress for " + seconds_text(settings.heartbeat_timeout);
}

}  // namespace

HangGuard::HangGuard(Loop& loop, Console& console, HangSettings settings,
                     std::vector<std::string> environment, View view)
    : loop_(loop),
      console_(console),
      settings_(settings),
      environment_(std::move(environment)),
      view_(std::move(view)) {}

void HangGuard::watch() {
  rest();
  if (!settings_.any()) return;
  detector_.emplace(settings_);
  schedule();
}

void HangGuard::rest() {
  if (timer_) loop_.cancel(*timer_);
  timer_.reset();
  detector_.reset();
  dumps_.clear();
}

void HangGuard::schedule() {
  const auto when = Loop::Clock::now() + std::chrono::milliseconds(detector_->interval());
  timer_ = loop_.call_at(when, [this] {
    timer_.reset();
    look();
  });
}

void HangGuard::look() {
  const std::vector<HungWorker> hung = detector_->look(signs(), view_.held_back(), millis_now());
  if (hung.empty()) return schedule();
  act_on(hung);
}

std::vector<LifeSigns> HangGuard::signs() const {
  std::vector<pid_t> leaders;
  const std::vector<WorkerProcess*> workers = view_.workers();
  for (const WorkerProcess* worker : workers) {
    if (worker->pid() > 0) leaders.push_back(worker->pid());
  }
  std::map<pid_t, GroupUsage> usage;
  if (settings_.stall_timeout > 0) usage = usage_of_groups(leaders);
  std::vector<LifeSigns> signs;
  for (const WorkerProcess* worker : workers) {
    if (worker->pid() <= 0) continue;
    const GroupUsage& group = usage[worker->pid()];
    signs.push_back({.local_rank = worker->local_rank(),
                     .beat = worker->heartbeat(),
                     .output_bytes = worker->output_bytes(),
                     .cpu_ms = group.cpu_ms,
                     .processes = group.processes});
  }
  return signs;
}

// The first is taken for the cause and killed. The others may only be waiting for it, and end as they would
// if it had died by itself. The stacks of all of them help to see why.
void HangGuard::act_on(const std::vector<HungWorker>& hung) {
  hung_rank_ = hung.front().local_rank;
  what_ = what_is_wrong(hung.front(), settings_);
  for (WorkerProcess* worker : view_.workers()) {
    if (worker->pid() <= 0) continue;
    if (worker->local_rank() == hung_rank_) view_.found(*worker, what_);
    dumps_.push_back(std::make_unique<StackDump>(loop_, worker->pid(), worker->stacks_file(), environment_,
                                                 [this] { dumped(); }));
  }
  dumps_left_ = dumps_.size();
}

void HangGuard::dumped() {
  if (--dumps_left_ == 0) kill_hung();
}

void HangGuard::kill_hung() {
  for (WorkerProcess* worker : view_.workers()) {
    if (worker->local_rank() != hung_rank_ || worker->pid() <= 0) continue;
    const std::filesystem::path file = worker->stacks_file();
    if (worker->has_log_dir()) return worker->kill_hung(what_ + " (stacks: " + file.string() + ")");
    std::string text = "where rank " + std::to_string(worker->rank()) + " stands:";
    for (const std::string& line : StackDump::in_short(file)) text += "\n  " + line;
    console_.notice(text);
    return worker->kill_hung(what_);
  }
}

}  // namespace dtrun::agent
