#include "agent/core/supervisor/state.h"

#include <algorithm>
#include <csignal>

#include "agent/core/supervisor/outcome.h"
#include "proto/core/exit_codes.h"

namespace dtrun::agent {

bool is_schedulers(int signal) { return signal == SIGTERM || signal == SIGUSR1 || signal == SIGUSR2; }

int WorkersState::running() const { return static_cast<int>(std::ranges::count_if(all, &Worker::alive)); }

int WorkersState::at_work() const {
  return static_cast<int>(std::ranges::count_if(all, [](const Worker& worker) {
    return worker.stage == Worker::kAtWork || (worker.lost && worker.alive());
  }));
}

int WorkersState::waiting() const {
  return static_cast<int>(std::ranges::count_if(all, [this](const Worker& worker) {
    return std::ranges::all_of(unit_of(worker),
                               [](const Worker& peer) { return peer.stage == Worker::kReady && !peer.lost; });
  }));
}

std::span<const Worker> WorkersState::unit_of(const Worker& worker) const {
  const auto first = static_cast<std::size_t>(worker.local_rank - worker.local_rank % unit);
  return std::span(all).subspan(first, static_cast<std::size_t>(unit));
}

bool WorkersState::asks_gpus() const { return std::ranges::any_of(all, &Worker::gpu_asked); }

bool WorkersState::all_ok() const {
  const auto ok = [](const Worker& worker) {
    return !worker.part || (worker.stage == Worker::kEnded && worker.outcome.ok());
  };
  return std::ranges::any_of(all, &Worker::part) && std::ranges::all_of(all, ok);
}

int State::exit_code_when_told() const {
  const bool well = std::ranges::all_of(workers.all, [&](const Worker& worker) {
    return worker.stage != Worker::kEnded || ended_well(worker.outcome, settings);
  });
  return told_by_scheduler() && well ? kExitStartAgain : exit_code_of_signal(ending.told_signal);
}

bool State::gives_way() const {
  return settings.is_replaced && ending.told_signal != 0 && ending.told_signal != SIGINT;
}

bool State::workers_outlive() const {
  const auto outlives = [](const Worker& worker) { return worker.outlives || !worker.part; };
  return settings.in_memory_recovery && (settings.builtin || std::ranges::all_of(workers.all, outlives));
}

bool State::takes_part() const {
  return generation.number() > 0 && !generation.closed && !generation.stopping && !generation.next &&
         workers.at_work() > 0;
}

bool State::progresses(std::int64_t of_generation) const {
  const auto works = [](const Worker& worker) { return worker.alive() && worker.stage != Worker::kReady; };
  return of_generation == generation.number() && !generation.closed &&
         generation.pause == GenerationState::kNone && std::ranges::any_of(workers.all, works);
}

bool State::succeeded() const { return generation.number() > 0 && generation.closed && all_finished(); }

// While the coordinator of a range is out of reach, others may have begun again without this node.
bool State::job_succeeded() const {
  const bool known = !settings.elastic || connection.connected || connection.gone_at;
  return succeeded() && known && generation.assignment.node_count == 1;
}

bool State::has_last_state() const {
  if (ending.job_end) {
    const JobEnd& end = *ending.job_end;
    return end.exit_code != kExitOk && !end.first_failure && !end.hang;
  }
  return !gives_way() && !(settings.elastic && generation.assignment.node_count > 1);
}

Millis State::connection_deadline() const {
  if (!connection.ever_connected) return started_at + settings.join_timeout;
  if (job_succeeded()) return connection.lost_at + kBlip;
  const bool gone = settings.elastic && connection.gone_at;
  const bool comes_back = connection.separate || settings.is_replaced || (settings.elastic && !gone);
  const Millis by_default = comes_back ? std::max(settings.without_coordinator, settings.join_timeout)
                                       : settings.without_coordinator;
  const Millis since = gone && !comes_back ? *connection.gone_at : connection.lost_at;
  return since + settings.read_timeout.value_or(by_default);
}

std::optional<Millis> State::parts_at() const {
  const ConnectionState& c = connection;
  const bool out_of_reach = c.ever_connected && !c.connected && !c.gone_at;
  if (!settings.elastic || !out_of_reach || is_ending()) return std::nullopt;
  if (generation.closed || generation.stopping || awaited() == 0) return std::nullopt;
  return c.silent ? c.lost_at : c.lost_at + settings.keep_alive;
}

}  // namespace dtrun::agent
