// In-memory recovery: workers that outlive generations pause and keep their trained state. workers.cc: how
// they wait for a place and get it, how replacements load, and when the coordinator may have them all again.
#include <algorithm>
#include <csignal>
#include <utility>

#include "agent/core/supervisor/generation.h"

namespace dtrun::agent {
namespace {

Millis pause_limit(const State& state) {
  const Settings& settings = state.settings;
  return state.workers.unit > 1 ? std::max(settings.pause_limit, settings.shutdown_timeout)
                                : settings.pause_limit;
}

}  // namespace

bool Generation::hands_over() const {
  return s.workers_outlive() && own_.assignment.node_count > 1 && s.workers.at_work() > 0;
}

// Workers at work keep their trained state and leave the generation after the step in hand. A second order,
// or a step that takes too long, makes them leave the step.
void Generation::pause(const std::string& reason, bool after_step) {
  const GenerationState::Pause pause = after_step ? GenerationState::kAfterStep : GenerationState::kNow;
  own_.pause_at.reset();
  if (!own_.paused_since) own_.paused_since = now_;
  if (!own_.stopping) tell_if_slow(reason);
  own_.stopping = true;
  own_.broken_at.reset();
  if (s.workers.at_work() == 0 || own_.pause >= pause) return;
  own_.pause = pause;
  emit(action::PauseWorkers{
      .after_step = after_step, .leaves = after_step && s.ending.told_signal != 0, .reason = reason});
  if (after_step)
    own_.pause_at = now_ + s.settings.shutdown_timeout / 2;
  else
    own_.kill_at = std::min(own_.kill_at.value_or(now_ + pause_limit(s)), now_ + pause_limit(s));
}

void Generation::end_paused() {
  workers_.end_waiting();
  if (!s.workers_outlive() || s.workers.at_work() > 0 || s.workers.signals.contains(SIGTERM)) return;
  workers_.end_rest();
  if (s.ending.told_signal == 0) own_.kill_at.reset();  // of the pause; people were told none of the end
  begin_grace();
}

// Workers that hold a torn state say by themselves why all begin again.
bool Generation::load_again() {
  if (s.settings.builtin || !s.workers_outlive() || !own_.held || s.all_finished()) return false;
  const auto counts = [](const Worker& worker) { return worker.alive() && (worker.step || worker.torn); };
  if (std::ranges::any_of(s.workers.all, counts)) return false;
  own_.lost = std::exchange(own_.held, std::nullopt);
  return workers_.end_outdated();
}

// Of one that is not known to outlive generations it means nothing. The worker has loaded, or left its
// generation with its trained state.
void Generation::on(const event::WorkerReady& e) {
  const Worker* worker = workers_.find(e.serial);
  const bool known =
      worker != nullptr && worker->alive() && !worker->lost && (s.settings.builtin || worker->outlives);
  if (!known) return;
  const bool left = workers_.ready(e);
  workers_.end_broken_units();
  if (!left) return;
  if (e.step) own_.held = std::max(own_.held, e.step);
  if (e.step && own_.progress) own_.progress->step = std::max(own_.progress->step, *e.step);
  if (!e.error.empty())
    broken(*worker, e.error);
  else
    begin_grace();  // without an order of this node, its peers agreed to pause
  settle_later();
}

// REQUIRES: progress.first_step
void Generation::trained(const Progress& progress) {
  const bool broken = own_.stopping || own_.broken_at;  // an older report
  if (!own_.paused_since || broken || progress.step <= *progress.first_step) return;
  emit(action::Recovered{.first_step = *progress.first_step,
                         .kept = own_.kept,
                         .replaced = own_.replaced,
                         .took = now_ - *own_.paused_since,
                         .from_in_memory_checkpoint = progress.from_in_memory_checkpoint});
  own_.paused_since.reset();
}

}  // namespace dtrun::agent
