#include "rendezvous/server/run_status.h"

#include <algorithm>
#include <vector>

#include "proto/wire/training.h"
#include "rendezvous/core/observe/straggler.h"
#include "rendezvous/wire/convert.h"

namespace dtrun::rendezvous {
namespace {

double seconds(Millis duration) { return static_cast<double>(duration) / 1000; }

v1::RunStatus::Phase phase_of(Phase phase) {
  switch (phase) {
    case Phase::kGathering:
      return v1::RunStatus::GATHERING;
    case Phase::kRunning:
      return v1::RunStatus::RUNNING;
    case Phase::kStopping:
      return v1::RunStatus::STOPPING;
    case Phase::kOver:
      break;
  }
  return v1::RunStatus::OVER;
}

// Null before the trainer has loaded, and for other programs.
const Progress* progress_of(const Member& member) {
  const std::optional<Progress>& progress = member.report.progress;
  return progress && progress->total_steps > 0 ? &*progress : nullptr;
}

void write(const Member& member, Millis now, v1::MemberStatus* wire) {
  wire->set_host(member.join.host);
  wire->set_address(member.join.address);
  wire->set_nproc(member.join.nproc);
  for (int pid : member.report.pids) wire->add_pids(pid);
  wire->set_heartbeat_age_s(seconds(now - member.last_seen));
  wire->set_device(member.join.device);
  wire->set_gpu(member.join.gpu);
  for (int gpu : member.join.gpus) wire->add_gpus(gpu);
  if (const Progress* progress = progress_of(member)) to_wire(*progress, wire->mutable_progress());
}

// REQUIRES: rank and nproc are set.
void write_workers(const Heartbeat& report, const std::vector<int>& ratios, v1::MemberStatus* wire) {
  for (int local_rank = 0; local_rank < wire->nproc(); ++local_rank) {
    const auto index = static_cast<std::size_t>(local_rank);
    v1::WorkerStatus* worker = wire->add_workers();
    worker->set_rank(wire->first_rank() + local_rank);
    worker->set_local_rank(local_rank);
    if (index < report.pids.size()) worker->set_pid(report.pids[index]);
    if (index >= report.workers.size()) continue;
    const WorkerReport& told = report.workers[index];
    if (told.rank >= 0) worker->set_rank(told.rank);
    worker->set_step(told.step);
    if (told.times) to_wire(*told.times, worker->mutable_times());
    if (told.usage) to_wire(*told.usage, worker->mutable_usage());
    if (told.quiet) to_wire(*told.quiet, worker->mutable_quiet());
    if (told.gpu) to_wire(*told.gpu, worker->mutable_gpu());
    const auto rank = static_cast<std::size_t>(worker->rank());
    if (rank < ratios.size() && ratios[rank] != kUnknownRatio)
      worker->set_own_time_ratio(ratios[rank] / 1000.0);
  }
}

v1::MemberStatus::State state_of(const Seat& seat) {
  if (seat.gone && !seat.finished) return v1::MemberStatus::LOST;
  if (seat.finished) return v1::MemberStatus::FINISHED;
  if (seat.away) return v1::MemberStatus::AWAY;
  return seat.stopped ? v1::MemberStatus::STOPPED : v1::MemberStatus::RUNNING;
}

void write_seats(const State& state, Millis now, v1::RunStatus* status) {
  for (int rank = 0; rank < state.current.seats.size(); ++rank) {
    v1::MemberStatus* wire = status->add_members();
    const Node& node = state.current.membership->nodes[static_cast<std::size_t>(rank)];
    const Seat& seat = state.current.seats[rank];
    const Member* member = seat.member ? state.members.find(*seat.member) : nullptr;
    wire->set_host(node.host);
    wire->set_address(node.address);
    wire->set_nproc(node.nproc);
    wire->set_heartbeat_age_s(-1);
    if (member != nullptr) write(*member, now, wire);
    wire->set_state(state_of(seat));
    wire->set_group_rank(rank);
    wire->set_first_rank(node.first_rank);
    if (member != nullptr) write_workers(member->report, state.stragglers.ratios(), wire);
  }
}

// Only rank 0 speaks for all: another's steps end at other moments, and it keeps other checkpoints.
void write_of_rank_0(const State& state, v1::RunStatus* status) {
  if (state.current.seats.size() == 0 || state.phase == Phase::kGathering) return;
  const Seat& seat = state.current.seats[0];
  const Member* member = seat.member ? state.members.find(*seat.member) : nullptr;
  if (member == nullptr || !member->report.progress) return;
  const Progress& progress = *member->report.progress;
  if (progress.step_durations) to_wire(*progress.step_durations, status->mutable_step_durations());
  if (progress.checkpoints) to_wire(*progress.checkpoints, status->mutable_checkpoints());
}

void write_waiting(const State& state, Millis now, v1::RunStatus* status) {
  std::vector<const Member*> waiting;
  for (const auto& [id, member] : state.members)
    if (state.phase == Phase::kGathering || !member.seat) waiting.push_back(&member);
  std::sort(waiting.begin(), waiting.end(),
            [](const Member* a, const Member* b) { return a->order < b->order; });
  for (const Member* member : waiting) {
    v1::MemberStatus* wire = status->add_members();
    write(*member, now, wire);
    wire->set_state(v1::MemberStatus::WAITING);
    wire->set_group_rank(-1);
  }
}

}  // namespace

v1::RunStatus status_of(const State& state, Millis now) {
  v1::RunStatus status;
  status.set_phase(phase_of(state.phase));
  status.set_generation(state.generation);
  status.set_restart_count(state.policy.restarts());
  status.set_membership_changes(state.membership_changes);
  to_wire(state.policy.history().failures, status.mutable_failures());
  if (state.settings) {
    status.set_run_id(state.settings->run_id);
    status.set_min_nodes(state.settings->min_nodes);
    status.set_max_nodes(state.settings->max_nodes);
    status.set_max_restarts(state.settings->restarts.max_restarts);
  }
  const Generation& current = state.current;
  if (current.membership) {
    status.set_world_size(current.membership->world_size);
    status.set_generation_age_s(seconds(now - current.started_at));
    status.set_reason(state.phase == Phase::kRunning ? current.membership->reason : current.why);
  }
  if (state.result) {
    status.set_exit_code(state.result->exit_code);
    status.set_ended_age_s(seconds(now - state.over_at));
    status.set_reason(state.result->reason);
  }
  if (state.deadlines.restart != kNever) status.set_restart_in_s(seconds(state.deadlines.restart - now));
  if (current.membership && state.phase != Phase::kGathering) write_seats(state, now, &status);
  write_of_rank_0(state, &status);
  write_waiting(state, now, &status);
  const bool waits = state.phase == Phase::kGathering && state.deadlines.join != kNever;
  if (waits) status.set_join_timeout_left_s(seconds(std::max<Millis>(0, state.deadlines.join - now)));
  for (const News& news : state.news.all(now)) to_wire(news, status.add_news());
  to_wire(goodput_of(state, now), status.mutable_goodput());
  const bool running = state.phase == Phase::kRunning;
  const std::optional<Verdict> verdict = state.result ? state.result->verdict
                                         : running    ? state.stragglers.verdict()
                                                      : std::nullopt;
  if (verdict) to_wire(*verdict, status.mutable_verdict());
  const Progress* newest = nullptr;
  for (const auto& [id, member] : state.members)
    if (const Progress* progress = progress_of(member))
      if (newest == nullptr || progress->step >= newest->step) newest = progress;
  if (newest != nullptr) to_wire(*newest, status.mutable_progress());
  return status;
}

}  // namespace dtrun::rendezvous
