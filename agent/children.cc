#include "agent/children.h"

#include <sys/wait.h>

#include <algorithm>
#include <utility>

#include "agent/core/left_behind.h"
#include "agent/process/proc_scan.h"

namespace dtrun::agent {
namespace {

using namespace std::chrono_literals;

}  // namespace

Children::Children(std::string tag, Watchdog& watchdog)
    : tag_(std::move(tag)), watchdog_(watchdog), outsiders_(has_other_children({watchdog.pid()})) {}

WorkerProcess& Children::add(int serial, std::unique_ptr<WorkerProcess> worker) {
  return *(workers_[serial] = std::move(worker));
}

void Children::forget_ended() {
  std::erase_if(workers_, [](const auto& worker) { return worker.second->ended(); });
}

WorkerProcess* Children::find(int serial) {
  const auto worker = workers_.find(serial);
  return worker == workers_.end() ? nullptr : worker->second.get();
}

std::vector<WorkerProcess*> Children::workers() {
  std::vector<WorkerProcess*> all;
  for (auto& [serial, worker] : workers_) all.push_back(worker.get());
  return all;
}

std::vector<pid_t> Children::pids(int nproc) const {
  std::vector<pid_t> pids(static_cast<std::size_t>(nproc), 0);
  for (const auto& [serial, worker] : workers_)
    pids[static_cast<std::size_t>(worker->local_rank())] = std::max<pid_t>(0, worker->pid());
  return pids;
}

void Children::signal_groups(int number) {
  for (auto& [serial, worker] : workers_) worker->signal_group(number);
}

void Children::send(const control::FromAgent& message) {
  for (auto& [serial, worker] : workers_) worker->send(message);
}

void Children::pause_output(bool paused) {
  for (auto& [serial, worker] : workers_) worker->output().pause(paused);
}

bool Children::any_paused() const {
  return std::ranges::any_of(workers_, [](const auto& worker) { return worker.second->output().paused(); });
}

void Children::reap() {
  bool orphans = false;
  for (;;) {
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) break;
    const pid_t pid = info.si_pid;
    auto worker =
        std::find_if(workers_.begin(), workers_.end(), [&](auto& w) { return w.second->pid() == pid; });
    if (worker != workers_.end()) {
      worker->second->reap();
      continue;
    }
    waitpid(pid, nullptr, 0);
    orphans = true;
    std::erase(spared_, pid);
    if (pid == watchdog_.pid()) {
      watchdog_.forget();
      if (++watchdog_restarts_ < 100) watchdog_.start();
    }
  }
  if (orphans) look_at_left_behind();
}

void Children::look_at_left_behind() {
  std::vector<LeftBehind*> all;
  for (const auto& [tag, left] : left_behind_) all.push_back(left.get());
  for (LeftBehind* left : all) left->look();
}

bool Children::let_end(Loop& loop, const WorkerProcess& worker, Loop::Clock::time_point deadline,
                       const Tell& tell) {
  if (!has_other_children(known())) return false;
  const std::string& tag = worker.tag();
  auto left = std::make_unique<LeftBehind>(
      loop, tag, worker.pid(), worker.name(), deadline,
      LeftBehind::Events{.tell = tell, .ended = [this, tag] { left_behind_.erase(tag); }});
  if (!left->any()) return false;
  left_behind_[tag] = std::move(left);
  return true;
}

void Children::kill_left_behind(const std::string& why) {
  while (!left_behind_.empty()) left_behind_.begin()->second->kill(why);
}

void Children::sweep(const WorkerProcess& worker, const Tell& tell) {
  if (!has_other_children(known())) return;
  const std::vector<FoundProcess> found =
      tell ? find_by_tag(worker.tag(), worker.pid()) : std::vector<FoundProcess>();
  if (!found.empty()) tell("killing " + left_behind_text(commands_of(found), worker.name()));
  sweep_tag(worker.tag());
}

void Children::sweep() { sweep_tag(tag_); }

// A process that left its group is our child now, since its parent is dead: without unknown children there is
// nothing to look for. There are rounds because a process may fork while we look.
void Children::sweep_tag(const std::string& tag) {
  for (int round = 0; round < 10 && has_other_children(known()); ++round) {
    if (kill_by_tag(tag) == 0) return;
  }
}

// If this process had children before the job began (those of a shell that became dtrun), they may have left
// us orphans too. The origin of an orphan is then unknown, and none is killed.
void Children::kill_unknown_children() {
  if (!outsiders_) kill_other_children(known(), 2s);
}

std::vector<pid_t> Children::known() const {
  std::vector<pid_t> known = spared_;
  known.push_back(watchdog_.pid());
  for (const auto& [serial, worker] : workers_) known.push_back(worker->pid());
  return known;
}

}  // namespace dtrun::agent
