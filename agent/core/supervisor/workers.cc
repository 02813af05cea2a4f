#include "agent/core/supervisor/workers.h"

#include <algorithm>
#include <csignal>
#include <functional>

#include "agent/core/supervisor/outcome.h"
#include "agent/text/report.h"
#include "proto/core/text.h"

namespace dtrun::agent {
namespace {

// Replacements that die in a row before they have loaded. Then it counts as a failure of the generation.
constexpr int kWarmUps = 3;

bool has_loaded(const Worker& worker) {
  return worker.stage == Worker::kReady || worker.stage == Worker::kAtWork;
}

bool has_state(const Worker& worker) {
  return !worker.lost && (worker.stage == Worker::kAtWork || (worker.stage == Worker::kReady && worker.step));
}

// The greater, the sooner it can work in a generation.
int readiness(const Worker& worker) {
  if (!worker.alive() || worker.lost) return 0;
  if (worker.stage != Worker::kReady) return 1;
  return worker.step ? 3 : 2;
}

}  // namespace

std::string ended_early_text(const WorkerOutcome& outcome) {
  return "a worker of this node ended with " +
         describe_exit(outcome.exit_code, outcome.signal, outcome.cause) + " before it took part in the run";
}

Worker* Workers::own(int serial) const {
  const auto worker = std::ranges::find(own_.all, serial, &Worker::serial);
  return worker != own_.all.end() ? &*worker : nullptr;
}

const Worker* Workers::ended(const event::WorkerExited& e) {
  Worker* worker = own(e.serial);
  if (worker == nullptr) return nullptr;
  worker->stage = Worker::kEnded;
  worker->outcome = e.outcome;
  worker->outcome = complete(std::move(worker->outcome), s, e.never_ran);
  if (worker->lost) worker->outcome.collateral = true;
  worker->outcome.gpu = worker->gpu_trouble;
  return worker;
}

void Workers::on(const event::WorkerOutlives& e) {
  Worker* worker = own(e.serial);
  if (worker == nullptr || !worker->alive() || !s.settings.in_memory_recovery) return;
  if (worker->part && s.generation.stopping) return;
  worker->outlives = true;
  own_.unit = e.unit;
  if (worker->stage == Worker::kAtWork) worker->stage = Worker::kLoading;
  own_.known_to_outlive = own_.known_to_outlive || std::ranges::all_of(own_.all, &Worker::outlives);
}

bool Workers::ready(const event::WorkerReady& e) {
  Worker& worker = *own(e.serial);
  if (worker.stage == Worker::kReady && !worker.part) return false;  // it has said so, and left nothing since
  const bool loaded = worker.stage == Worker::kLoading;
  worker.stage = Worker::kReady;
  worker.step = e.step;
  worker.torn = e.torn;
  if (!loaded) return true;
  own_.failed_warm_ups = 0;
  if (worker.part && !s.generation.stopping && !s.is_ending()) {
    place(worker);
  } else {
    tell_ready();
    settle_later();
  }
  return false;
}

// A worker of a unit may end with 0 before the others do; but one that waits for a place will get none.
void Workers::end_broken_units() {
  if (!s.workers_outlive() || s.is_ending()) return;
  int count = 0;
  for (Worker& worker : own_.all) {
    if (!worker.alive() || worker.lost) continue;
    const bool broken = std::ranges::any_of(own_.unit_of(worker), [&](const Worker& peer) {
      return peer.stage == Worker::kEnded && (!peer.outcome.ok() || worker.stage == Worker::kReady);
    });
    if (!broken) continue;
    worker.lost = true;
    signal(SIGKILL, worker.serial);
    ++count;
  }
  if (count == 0) return;
  const bool none = std::ranges::none_of(own_.all, [this](const Worker& worker) {
    return std::ranges::all_of(own_.unit_of(worker), has_state);
  });
  print("ending " + counted(count, "worker") + " whose unit is not whole any more" +
        (none ? "; no unit that holds a state is left on this node" : ""));
}

void Workers::end_waiting() {
  if (s.settings.builtin) return;
  const bool final = !s.workers_outlive() || s.workers.at_work() == 0;
  std::optional<std::int64_t> furthest;
  std::vector<Worker*> last, waiting;
  for (Worker& worker : own_.all) {
    if (worker.stage != Worker::kReady || !worker.outlives || worker.lost) continue;
    waiting.push_back(&worker);
    if (s.has_last_state() && std::ranges::all_of(own_.unit_of(worker), has_state))
      furthest = std::max(furthest, worker.step);
  }
  for (Worker* worker : waiting)
    if (worker->step && worker->step == furthest) last.push_back(worker);
  for (Worker* worker : waiting) {
    if (worker->told_end || (worker->step && !final)) continue;
    worker->told_end = true;
    const auto at = std::ranges::find(last, worker) - last.begin();
    const bool alone = s.generation.assignment.node_count == 1;  // no other node has ranks
    emit(action::EndWorker{
        .serial = worker->serial,
        .last = at < std::ssize(last),
        .rank = alone ? static_cast<int>(at) : worker->rank,
        .world_size = alone ? static_cast<int>(last.size()) : s.generation.assignment.world_size});
  }
}

// A worker that was told that there is no place for it may be ending: Python then dies of any signal.
void Workers::end_rest() {
  const auto told = [](const Worker& worker) { return worker.alive() && worker.told_end; };
  if (std::ranges::none_of(own_.all, told)) return signal(SIGTERM);
  own_.signals.insert(SIGTERM);
  for (const Worker& worker : own_.all)
    if (worker.alive() && !worker.told_end) signal(SIGTERM, worker.serial);
}

bool Workers::end_outdated() {
  bool any = false;
  for (Worker& worker : own_.all) {
    if (!worker.alive() || worker.lost) continue;
    any = worker.lost = true;
    signal(SIGKILL, worker.serial);
  }
  return any;
}

void Workers::ask_gpu(const Worker& worker) {
  if (!s.settings.has_gpu_driver || worker.gpu_asked || !worker.gpu_trouble.empty()) return;
  own_.all[static_cast<std::size_t>(worker.local_rank)].gpu_asked = true;
  emit(action::AskGpu{.serial = worker.serial, .local_rank = worker.local_rank});
}

const Worker* Workers::gpu_found(const event::GpuFound& e) {
  Worker* worker = own(e.serial);
  if (worker == nullptr || !std::exchange(worker->gpu_asked, false)) return nullptr;
  worker->gpu_trouble = worker->outcome.gpu = e.trouble;
  return worker;
}

// Units whose workers all have a trained state come first, then those that are ready without one, then those
// that have begun to load. Ranks are in the order of local ranks.
std::vector<action::Spawn> Workers::choose(const rendezvous::Node& node) {
  std::vector<Worker*> order;
  for (Worker& worker : own_.all) order.push_back(&worker);
  std::ranges::stable_sort(order, std::greater<>(), [this](const Worker* worker) {
    return readiness(*std::ranges::min_element(own_.unit_of(*worker), {}, readiness));
  });
  for (std::size_t i = 0; i < order.size(); ++i) order[i]->part = static_cast<int>(i) < node.nproc;
  int rank = node.first_rank;
  for (Worker& worker : own_.all)
    if (worker.part) worker.rank = rank++;
  own_.signals.clear();
  return spawn_missing();
}

std::vector<action::Spawn> Workers::spawn_missing() {
  std::vector<Worker*> missing;  // of units none of whose workers is left
  for (Worker& worker : own_.all)
    if (std::ranges::none_of(own_.unit_of(worker), &Worker::alive)) missing.push_back(&worker);
  std::vector<action::Spawn> spawn;
  for (Worker* const one : missing) {
    Worker& worker = *one;
    worker = {.local_rank = worker.local_rank,
              .stage = s.settings.builtin || !worker.part ? Worker::kLoading : Worker::kAtWork,
              .serial = own_.next_serial++,
              .part = worker.part,
              .rank = worker.rank};
    spawn.push_back(spawn_of(worker));
  }
  return spawn;
}

action::Spawn Workers::spawn_of(const Worker& worker) const {
  const int likely = s.generation.assignment.node.first_rank + worker.local_rank;
  return {
      .serial = worker.serial, .local_rank = worker.local_rank, .rank = worker.part ? worker.rank : likely};
}

bool Workers::hold(const std::vector<action::Spawn>& spawn) {
  if (!s.settings.has_gpu_driver || spawn.empty()) return false;
  for (const action::Spawn& one : spawn) own(one.serial)->held = true;
  if (!std::exchange(own_.awaits_gpus, true)) emit(action::AwaitGpus{});
  return true;
}

void Workers::on(const event::GpusFree& e) {
  own_.awaits_gpus = false;
  if (!e.note.empty()) print(e.note);
  std::vector<action::Spawn> spawn;
  for (Worker& worker : own_.all)
    if (std::exchange(worker.held, false)) spawn.push_back(spawn_of(worker));
  if (!spawn.empty()) emit(action::WarmUp{std::move(spawn)});
}

int Workers::place_ready() {
  int kept = 0;
  for (Worker& worker : own_.all) {
    if (!worker.part || worker.stage != Worker::kReady) continue;
    kept += worker.step.has_value();
    place(worker);
  }
  return kept;
}

void Workers::place(Worker& worker) {
  worker.stage = Worker::kAtWork;
  emit(action::PlaceWorker{.serial = worker.serial,
                           .rank = worker.rank,
                           .index = worker.rank - s.generation.assignment.node.first_rank});
}

void Workers::on(const event::WaitStatus& e) {
  own_.known_to_outlive = own_.known_to_outlive || e.outlives;
  const bool wanted = (e.run_goes_on && e.joined <= e.max_nodes) || !e.short_of_workers.empty();
  if (e.restart_in <= 0 && wanted) warm_up();
}

void Workers::warm_up() {
  if (!s.settings.in_memory_recovery || s.is_ending()) return;
  if (!s.workers_warm_up()) return workers_run() ? void() : emit(action::SendReady{generation()});
  for (Worker& worker : own_.all) worker.part = worker.part && worker.alive();
  std::vector<action::Spawn> spawn = spawn_missing();
  if (!spawn.empty() && !hold(spawn)) emit(action::WarmUp{std::move(spawn)});
}

bool Workers::replace(const Worker& worker) {
  if (!worker.lost) {
    if (!worker.outcome.retryable || ++own_.failed_warm_ups >= kWarmUps) return false;
    print(ended_early_text(worker.outcome) + "; starting another");
  }
  warm_up();
  return true;
}

void Workers::tell_ready() {
  const auto loaded = std::ranges::count_if(own_.all, has_loaded);
  const bool all = s.workers_warm_up() ? loaded >= s.settings.nproc : generation() > 0 && !workers_run();
  const bool outside = s.generation.closed || !std::ranges::all_of(own_.all, &Worker::part);
  if (s.settings.in_memory_recovery && all && outside && !s.is_ending())
    emit(action::SendReady{generation()});
}

void Workers::signal(int number, std::optional<int> only) {
  own_.signals.insert(number);
  emit(action::SignalWorkers{.number = number, .only = only});
  for (Worker& worker : own_.all) {
    if (!worker.held || (only && *only != worker.serial)) continue;
    worker.held = false;
    WorkerOutcome outcome;
    outcome.local_rank = worker.local_rank;
    outcome.signal = number;
    unstarted_.push_back({.serial = worker.serial, .outcome = std::move(outcome)});
  }
}

}  // namespace dtrun::agent
