// Workers that outlive generations: how they pause, wait for a place and get it, how replacements load, and
// when the coordinator may have them all again.
#include <algorithm>
#include <csignal>
#include <functional>
#include <utility>

#include "agent/core/supervisor/notices.h"
#include "agent/core/supervisor/step.h"
#include "agent/text/report.h"
#include "proto/core/exit_codes.h"

namespace dtrun::agent {
namespace {

// Workers that were told to leave a generation at once only wait for the microbatch in hand.
constexpr Millis kPauseLimit = 10000;
// Replacements that die in a row before they have loaded. Then it counts as a failure of the generation.
constexpr int kWarmUps = 3;

}  // namespace

bool Step::hands_over() const {
  return s.settings.in_memory_recovery && s.group.assignment.node_count > 1 && s.at_work() > 0;
}

// Workers at work keep their trained state and leave the generation after the step in hand. A second order,
// or a step that takes too long, makes them leave the step.
void Step::pause_workers(const std::string& reason, bool after_step) {
  const Group::Pause pause = after_step ? Group::kAfterStep : Group::kNow;
  s.group.pause_at.reset();
  if (!s.paused_since) s.paused_since = now_;
  if (!s.group.stopping) tell_if_slow(reason);
  s.group.stopping = true;
  s.group.broken_at.reset();
  if (s.at_work() == 0 || s.group.pause >= pause) return;
  s.group.pause = pause;
  emit(action::PauseWorkers{.after_step = after_step, .reason = reason});
  if (after_step)
    s.group.pause_at = now_ + s.settings.shutdown_timeout / 2;
  else
    s.group.kill_at = std::min(s.group.kill_at.value_or(now_ + kPauseLimit), now_ + kPauseLimit);
}

// The job ends here while the workers wait for a generation: they save their state, and end.
void Step::end_paused() {
  if (!s.settings.in_memory_recovery || s.at_work() > 0 || s.group.signals.contains(SIGTERM)) return;
  signal_workers(SIGTERM);
  begin_grace();
}

// The worker has loaded, or left its generation with its trained state.
void Step::on(const event::WorkerReady& e) {
  Worker* worker = worker_of(e.serial);
  if (worker == nullptr || !worker->alive()) return;
  const bool loaded = worker->stage == Worker::kLoading;
  worker->stage = Worker::kReady;
  worker->step = e.step;
  if (loaded) {
    s.failed_warm_ups = 0;
    if (worker->part && !s.group.stopping && !s.ending()) return place(*worker);
    tell_ready();
  } else {
    if (e.step && s.group.progress) s.group.progress->step = std::max(s.group.progress->step, *e.step);
    if (!e.error.empty())
      broken(*worker, e.error);
    else
      begin_grace();  // without an order of this node, its peers agreed to pause
  }
  settle();
}

// Ready workers come first, then those that have begun to load. Ranks are in the order of local ranks.
void Step::choose_parts(int count) {
  std::vector<Worker*> order;
  for (Worker& worker : s.workers) order.push_back(&worker);
  std::ranges::stable_sort(order, std::greater<>(), [](const Worker* worker) {
    return worker->stage == Worker::kReady ? 2 : worker->alive() ? 1 : 0;
  });
  for (std::size_t i = 0; i < order.size(); ++i) order[i]->part = static_cast<int>(i) < count;
  int rank = s.group.assignment.node.first_rank;
  for (Worker& worker : s.workers)
    if (worker.part) worker.rank = rank++;
}

void Step::place(Worker& worker) {
  worker.stage = Worker::kAtWork;
  emit(action::PlaceWorker{.serial = worker.serial,
                           .rank = worker.rank,
                           .index = worker.rank - s.group.assignment.node.first_rank});
}

// The next generation can have all workers of this node once they have loaded.
void Step::warm_up() {
  if (!s.settings.in_memory_recovery || s.ending()) return;
  for (Worker& worker : s.workers) worker.part = worker.part && worker.alive();
  std::vector<action::Spawn> spawn = spawn_missing();
  if (!spawn.empty() && !hold(spawn)) emit(action::WarmUp{std::move(spawn)});
}

// A replacement that dies while it loads is no failure of the run at first: another one is started.
bool Step::warm_up_failed(const Worker& worker) {
  if (worker.part || s.ending()) return false;
  const bool again = worker.outcome.retryable && ++s.failed_warm_ups < kWarmUps;
  const std::string how =
      "a worker of this node ended with " +
      describe_exit(worker.outcome.exit_code, worker.outcome.signal, worker.outcome.cause) +
      " before it took part in the run";
  if (again) {
    print(how + "; starting another");
    warm_up();
  } else if (s.group.closed) {
    give_up(pass_on(worker.outcome.signal != 0 ? exit_code_of_signal(worker.outcome.signal)
                                               : worker.outcome.exit_code),
            worker.outcome.error.empty() ? how : how + ": " + worker.outcome.error);
  }
  return again || s.group.closed;
}

void Step::tell_ready() {
  const bool all = std::ranges::all_of(s.workers, [](const Worker& worker) {
    return worker.stage == Worker::kReady || worker.stage == Worker::kAtWork;
  });
  const bool outside = s.group.closed || !std::ranges::all_of(s.workers, &Worker::part);
  if (s.settings.in_memory_recovery && all && outside && !s.ending()) emit(action::SendReady{generation()});
}

void Step::on(const event::Trained& e) {
  s.steps_redone.progressed(e.first_step, e.step);
  const bool broken = s.group.stopping || s.group.broken_at;  // an older report
  if (!s.paused_since || broken || e.step <= e.first_step) return;
  emit(action::Recovered{.first_step = e.first_step,
                         .kept = s.kept,
                         .replaced = s.replaced,
                         .took = now_ - *s.paused_since,
                         .from_in_memory_checkpoint = e.from_in_memory_checkpoint});
  s.paused_since.reset();
}

}  // namespace dtrun::agent
