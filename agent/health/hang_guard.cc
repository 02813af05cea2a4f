#include "agent/health/hang_guard.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <utility>

#include "agent/health/group_usage.h"
#include "proto/core/text.h"

namespace dtrun::agent {
namespace {

using namespace std::chrono_literals;

// A debugger may take long over a big program. For all workers of the node together.
constexpr auto kOwnLook = 20s;

// `together`: the same words for each of several workers.
std::string what_is_wrong(const WorkerProcess& worker, Millis timeout, bool together) {
  std::string what = "no progress for " + seconds_text(timeout);
  if (!worker.has_log_dir()) return what;
  std::filesystem::path file = worker.stacks_file();
  if (together) file = file.parent_path().parent_path() / "RANK" / file.filename();
  return what + " (stacks: " + file.string() + ")";
}

}  // namespace

HangGuard::HangGuard(Loop& loop, HangSettings settings, std::vector<std::string> environment, View view)
    : loop_(loop), settings_(settings), environment_(std::move(environment)), view_(std::move(view)) {}

void HangGuard::watch() {
  rest();
  found_.clear();
  if (!settings_.any()) return;
  detector_.emplace(settings_);
  schedule();
}

void HangGuard::rest() {
  if (timer_) loop_.cancel(*timer_);
  timer_.reset();
  ++asked_;
  detector_.reset();
  if (!inspection_) return;
  take_standings();
  inspection_.reset();
}

void HangGuard::schedule() {
  const auto when = Loop::Clock::now() + std::chrono::milliseconds(detector_->interval());
  timer_ = loop_.call_at(when, [this] {
    timer_.reset();
    check();
  });
}

void HangGuard::check() {
  const std::vector<LifeSigns> seen = view_.matters() ? signs() : std::vector<LifeSigns>();
  const std::vector<HungWorker> hung = detector_->look(seen, view_.held_back(), millis_now());
  if (hung.empty()) return schedule();
  if (!ask_other_nodes(hung)) act_on(hung);
}

// Workers that have all begun as many collectives may wait for a worker of another node. False: there is
// nobody to ask.
bool HangGuard::ask_other_nodes(const std::vector<HungWorker>& hung) {
  const std::optional<std::uint64_t> mine = collectives_of(hung);
  if (!mine || !view_.spares_victims()) return false;
  // The other nodes find their silent workers within an interval; one more is for those that fell silent
  // later.
  const std::chrono::milliseconds patience(2 * detector_->interval());
  return view_.compare(*mine, patience, [this, hung, mine = *mine, asked = ++asked_](const Counts& counts) {
    if (asked != asked_) return;
    if (!wait_for_another_node(mine, counts)) return act_on(hung);
    for (const HungWorker& one : hung) detector_->waits_for_peers(one.local_rank);
    schedule();
  });
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
                     .processes = group.processes,
                     .collectives = worker->collectives()});
  }
  return signs;
}

void HangGuard::act_on(const std::vector<HungWorker>& hung) {
  const HungWorker& first = hung.front();
  const bool silent = first.alone && view_.silence_tells();
  const Millis timeout = first.stalled ? settings_.stall_timeout : settings_.heartbeat_timeout;
  for (const HungWorker& one : hung) {
    if (silent && one.local_rank != first.local_rank) continue;
    const WorkerProcess* worker = find(one.local_rank);
    if (worker == nullptr) continue;
    found_.push_back({one.local_rank, what_is_wrong(*worker, timeout, !silent && hung.size() > 1), silent});
  }
  const WorkerProcess* worker = find(first.local_rank);
  const std::string of = !first.stalled && hung.size() == 1 && worker != nullptr
                             ? "rank " + std::to_string(worker->rank()) + ": "
                             : "";
  view_.tell(of + "no progress for " + seconds_text(timeout) +
             (first.stalled ? ": no worker of this node wrote or computed anything" : "") +
             "; looking where the workers stand");
  begin_look(kOwnLook);
}

void HangGuard::look(Millis limit) {
  if (inspection_ || !found_.empty()) return;
  if (timer_) loop_.cancel(*timer_);
  timer_.reset();
  begin_look(std::chrono::milliseconds(limit));
}

void HangGuard::begin_look(std::chrono::milliseconds limit) {
  std::vector<Inspection::Worker> workers;
  for (const WorkerProcess* worker : view_.workers())
    if (worker->pid() > 0) workers.push_back({worker->local_rank(), worker->pid(), worker->stacks_file()});
  inspection_ = std::make_unique<Inspection>(loop_, workers, limit, environment_, [this] { looked(); });
}

void HangGuard::looked() {
  const bool hung = !found_.empty();
  if (hung && view_.spares_victims()) spare_victims();
  take_standings();
  const std::string advice = inspection_->advice();
  if (!advice.empty() && !advised_) view_.tell(advice);
  advised_ = advised_ || !advice.empty();
  if (hung && found_.empty()) {
    view_.tell("the workers that gave no sign wait for other ranks: none is ended here");
    schedule();
  }
  if (found_.empty()) return;
  std::vector<WorkerOutcome> outcomes;
  for (const Found& one : found_)
    if (const WorkerProcess* worker = find(one.local_rank))
      outcomes.push_back(worker->hung_outcome(one.what));
  if (!outcomes.empty()) view_.found(std::move(outcomes));
}

void HangGuard::spare_victims() {
  std::map<int, Activity> stands;
  for (const Found& one : found_)
    stands[one.local_rank] =
        one.silent ? Activity::kSilent : inspection_->stack_location(one.local_rank).activity;
  const std::vector<int> fault = at_fault(stands);
  std::erase_if(found_, [&](const Found& one) {
    const bool victim = std::ranges::find(fault, one.local_rank) == fault.end();
    if (victim) detector_->waits_for_peers(one.local_rank);
    return victim;
  });
}

// A victim's standing is left out if it goes on: it has no part in how the victim ends.
void HangGuard::take_standings() {
  for (WorkerProcess* worker : view_.workers()) {
    const bool hangs = std::ranges::find(found_, worker->local_rank(), &Found::local_rank) != found_.end();
    if (view_.spares_victims() && !hangs) continue;
    StackLocation stack_location = inspection_->stack_location(worker->local_rank());
    if (stack_location.activity == Activity::kUnseen) continue;
    const bool silent = std::any_of(found_.begin(), found_.end(), [&](const Found& one) {
      return one.silent && one.local_rank == worker->local_rank();
    });
    if (silent) stack_location.activity = Activity::kSilent;
    worker->set_standing(std::move(stack_location));
  }
}

void HangGuard::kill_hung() {
  for (const Found& one : found_)
    if (WorkerProcess* worker = find(one.local_rank)) worker->kill_hung(one.what);
}

// Null if it has ended.
WorkerProcess* HangGuard::find(int local_rank) const {
  for (WorkerProcess* worker : view_.workers())
    if (worker->local_rank() == local_rank && worker->pid() > 0) return worker;
  return nullptr;
}

}  // namespace dtrun::agent
