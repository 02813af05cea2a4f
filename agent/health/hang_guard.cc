#include "agent/health/hang_guard.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <utility>

#include "agent/health/group_usage.h"
#include "agent/health/kernel_wait.h"
#include "proto/base/clock.h"
#include "proto/core/text.h"

namespace dtrun::agent {
namespace {

using namespace std::chrono_literals;

// A debugger may take long over a big program. For all workers of the node together.
constexpr auto kOwnLook = 20s;

// Pages that were read from a disk count as read.
void take_usage(const rendezvous::WorkerUsage& usage, LifeSigns& signs) {
  static constexpr std::int64_t kPage = 4096;
  signs.cpu_ms = static_cast<Millis>(usage.cpu * 1000);
  signs.io_bytes = usage.read_bytes + usage.written_bytes + usage.major_faults * kPage;
}

// The operation in which the worker has waited for another rank for the longest time. While the ranks
// connect, those that still load are waited for.
std::optional<Operation> wait_for_peer(std::vector<Operation> operations) {
  std::erase_if(operations, [](const Operation& each) { return each.kind == Operation::Kind::kConnect; });
  return longest_wait(operations);
}

// `together`: the same words for each of several workers.
std::string what_is_wrong(const WorkerProcess& worker, const HungWorker& hung, Millis timeout,
                          bool together) {
  if (hung.raised)
    return "raised an error, and did not end for " + seconds_text(timeout) + ": " + worker.raised();
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
  if (!settings_.ends() && !settings_.tells()) return;
  detector_.emplace(settings_);
  schedule();
}

void HangGuard::rest() {
  timer_.cancel();
  ++asked_;
  detector_.reset();
  quiet_.clear();
  notice_inspection_.reset();
  looked_for_people_ = false;
  if (!inspection_) return;
  take_standings();
  inspection_.reset();
}

void HangGuard::schedule() {
  const auto when = Loop::Clock::now() + std::chrono::milliseconds(detector_->interval());
  timer_.set(when, [this] { check(); });
}

void HangGuard::check() {
  const std::vector<LifeSigns> seen = view_.matters() ? signs() : std::vector<LifeSigns>();
  const std::vector<HungWorker> hung = detector_->look(seen, view_.held_back(), millis_now());
  note_quiet();
  if (hung.empty()) return schedule();
  if (!ask_other_nodes(hung)) act_on(hung);
}

void HangGuard::note_quiet() {
  std::map<int, rendezvous::Quiet> now;
  bool unseen = false, overdue = false;
  for (const QuietWorker& one : detector_->quiet()) {
    const WorkerProcess* worker = find(one.local_rank);
    if (worker == nullptr) continue;
    const rendezvous::Quiet& quiet = now[one.local_rank] = describe(one, *worker);
    overdue = overdue || one.overdue;
    unseen = unseen || (one.overdue && quiet.why != rendezvous::Quiet::kWaits && quiet.where.empty());
  }
  quiet_ = std::move(now);
  if (overdue && unseen) look_for_people();
  if (!overdue) notice_inspection_.reset(), looked_for_people_ = false;
}

// A worker of the built-in trainer is looked at without a tool, and so at once and whenever it is quiet.
rendezvous::Quiet HangGuard::describe(const QuietWorker& quiet, const WorkerProcess& worker) const {
  rendezvous::Quiet result{.why = static_cast<rendezvous::Quiet::Why>(quiet.why),
                           .seconds = static_cast<double>(quiet.for_ms) / 1000,
                           .overdue = quiet.overdue};
  StackLocation place;
  if (quiet.why == QuietWorker::kWaits) {
    const std::optional<Operation> wait = wait_for_peer(worker.operations());
    if (!wait) return result;
    result.peer = wait->peer;
    result.operation = wait->kind;
    result.step = wait->step;
    result.bucket = wait->bucket;
  } else if (worker.memory().operations) {
    place = stack_location_of(kernel_wait_of_any(worker.pid()), {}, {});
  } else if (notice_inspection_) {
    place = notice_inspection_->stack_location(quiet.local_rank);
  }
  result.where = place.where;
  result.activity = place.activity;
  return result;
}

// Once for each time that the node gets nowhere.
void HangGuard::look_for_people() {
  if (std::exchange(looked_for_people_, true) || inspection_) return;
  std::vector<Inspection::InspectedWorker> workers;
  for (const WorkerProcess* worker : view_.workers())
    if (worker->pid() > 0) workers.push_back({worker->local_rank(), worker->pid(), worker->stacks_file()});
  notice_inspection_ = std::make_unique<Inspection>(loop_, workers, kOwnLook, Inspection::Tools::kHarmless,
                                                    environment_, [] {});
}

// Workers that have all begun as many collectives may wait for a worker of another node. False: there is
// nobody to ask.
bool HangGuard::ask_other_nodes(const std::vector<HungWorker>& hung) {
  const std::optional<std::uint64_t> mine = collectives_of(hung);
  if (!mine || hung.front().raised || !view_.spares_victims()) return false;
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
  std::map<pid_t, GroupUsage> groups;
  if (settings_.stall_timeout > 0) groups = usage_of_groups(leaders);
  const bool idle_matters = settings_.idle_notice > 0;
  static const std::map<pid_t, rendezvous::WorkerUsage> kNone;
  const auto& usages = idle_matters ? view_.usages() : kNone;
  const std::int64_t now = steady_nanoseconds();
  std::vector<LifeSigns> signs;
  for (const WorkerProcess* worker : workers) {
    if (worker->pid() <= 0) continue;
    LifeSigns& one = signs.emplace_back();
    one.local_rank = worker->local_rank();
    one.beat = worker->heartbeat();
    one.output_bytes = worker->output().bytes();
    one.collectives = worker->signs().collectives();
    one.raised = !worker->raised().empty();
    if (const auto wait = wait_for_peer(worker->operations())) one.waits_ms = (now - wait->began) / 1'000'000;
    if (const auto usage = usages.find(worker->pid()); usage != usages.end()) take_usage(usage->second, one);
    const auto group = groups.find(worker->pid());
    if (group == groups.end()) continue;
    one.cpu_ms = group->second.cpu_ms;
    one.processes = group->second.processes;
  }
  return signs;
}

void HangGuard::act_on(const std::vector<HungWorker>& hung) {
  const HungWorker& first = hung.front();
  const bool silent = !first.raised && first.alone && view_.silence_tells();
  const Millis timeout = first.raised    ? first.silent_ms
                         : first.stalled ? settings_.stall_timeout
                                         : settings_.heartbeat_timeout;
  for (const HungWorker& one : hung) {
    if (silent && one.local_rank != first.local_rank) continue;
    const WorkerProcess* worker = find(one.local_rank);
    if (worker == nullptr) continue;
    found_.push_back({one.local_rank, what_is_wrong(*worker, one, timeout, !silent && hung.size() > 1),
                      one.raised ? Activity::kRaised
                      : silent   ? Activity::kSilent
                                 : Activity::kUnseen});
  }
  const WorkerProcess* worker = find(first.local_rank);
  const std::string of = (first.raised || !first.stalled) && hung.size() == 1 && worker != nullptr
                             ? "rank " + std::to_string(worker->rank()) + ": "
                             : "";
  const std::string what = first.raised ? found_.empty() ? "raised an error" : found_.front().what
                                        : "no progress for " + seconds_text(timeout);
  view_.tell(of + what +
             (first.stalled && !first.raised ? ": no worker of this node wrote or computed anything" : "") +
             "; looking where the workers stand");
  begin_look(kOwnLook);
}

void HangGuard::look(Millis limit) {
  if (inspection_ || !found_.empty()) return;
  timer_.cancel();
  begin_look(std::chrono::milliseconds(limit));
}

void HangGuard::begin_look(std::chrono::milliseconds limit) {
  std::vector<Inspection::InspectedWorker> workers;
  for (const WorkerProcess* worker : view_.workers())
    if (worker->pid() > 0) workers.push_back({worker->local_rank(), worker->pid(), worker->stacks_file()});
  notice_inspection_.reset();
  inspection_ = std::make_unique<Inspection>(loop_, workers, limit, Inspection::Tools::kAll, environment_,
                                             [this] { looked(); });
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
        is_at_fault(one.known) ? one.known : inspection_->stack_location(one.local_rank).activity;
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
    const auto found = std::ranges::find(found_, worker->local_rank(), &Found::local_rank);
    if (found != found_.end() && is_at_fault(found->known))
      stack_location.activity = found->known;
    else if (!worker->raised().empty() || ends_in_traceback(worker->output().error_tail()))
      stack_location.activity = Activity::kRaised;
    if (stack_location.activity == Activity::kUnseen) continue;
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
