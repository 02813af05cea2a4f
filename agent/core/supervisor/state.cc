#include "agent/core/supervisor/state.h"

#include <algorithm>
#include <csignal>

#include "agent/core/supervisor/outcome.h"
#include "proto/core/exit_codes.h"

namespace dtrun::agent {

namespace {

constexpr Millis kWithoutCoordinator = 30000;

}  // namespace

bool is_schedulers(int signal) { return signal == SIGTERM || signal == SIGUSR1 || signal == SIGUSR2; }

int State::exit_code_when_told() const {
  const bool well = std::ranges::all_of(workers, [&](const Worker& worker) {
    return worker.stage != Worker::kEnded || ended_well(worker.outcome, settings);
  });
  return told_by_scheduler() && well ? kExitStartAgain : exit_code_of_signal(told_signal);
}

bool State::gives_way() const { return settings.is_replaced && told_signal != 0 && told_signal != SIGINT; }

int State::running() const { return static_cast<int>(std::ranges::count_if(workers, &Worker::alive)); }

int State::at_work() const {
  return static_cast<int>(std::ranges::count(workers, Worker::kAtWork, &Worker::stage));
}

bool State::asks_gpus() const { return std::ranges::any_of(workers, &Worker::gpu_asked); }

bool State::takes_part() const {
  return group.generation() > 0 && !group.closed && !group.stopping && !next && at_work() > 0;
}

bool State::progresses() const {
  const auto works = [](const Worker& worker) { return worker.alive() && worker.stage != Worker::kReady; };
  return !group.closed && group.pause == Group::kNone && std::ranges::any_of(workers, works);
}

bool State::all_ok() const {
  return std::ranges::all_of(workers, [](const Worker& worker) {
    return !worker.part || (worker.stage == Worker::kEnded && worker.outcome.ok());
  });
}

bool State::succeeded() const { return group.generation() > 0 && group.closed && all_finished(); }

bool State::job_succeeded() const { return succeeded() && group.assignment.node_count == 1; }

Millis State::link_deadline() const {
  if (!link.ever_connected) return started_at + settings.join_timeout;
  if (job_succeeded()) return link.lost_at + kBlip;
  const bool comes_back = link.separate || settings.is_replaced;
  const Millis by_default =
      comes_back ? std::max(kWithoutCoordinator, settings.join_timeout) : kWithoutCoordinator;
  return link.lost_at + settings.read_timeout.value_or(by_default);
}

}  // namespace dtrun::agent
