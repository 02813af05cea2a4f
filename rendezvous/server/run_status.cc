#include "rendezvous/server/run_status.h"

#include <algorithm>

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

void write(const Member& member, Millis now, v1::MemberStatus* wire) {
  wire->set_host(member.join.host);
  wire->set_address(member.join.address);
  wire->set_nproc(member.join.nproc);
  for (int pid : member.report.pids) wire->add_pids(pid);
  wire->set_heartbeat_age_s(seconds(now - member.last_seen));
  if (member.report.progress.total_steps > 0) to_wire(member.report.progress, wire->mutable_progress());
}

v1::MemberStatus::State state_of(const Seat& seat) {
  if (seat.gone && !seat.finished) return v1::MemberStatus::LOST;
  if (seat.finished) return v1::MemberStatus::FINISHED;
  if (seat.away()) return v1::MemberStatus::AWAY;
  return seat.stopped ? v1::MemberStatus::STOPPED : v1::MemberStatus::RUNNING;
}

void write_seats(const State& state, Millis now, v1::RunStatus* status) {
  for (std::size_t rank = 0; rank < state.seats.size(); ++rank) {
    v1::MemberStatus* wire = status->add_members();
    const Node& node = state.membership->nodes[rank];
    const auto member = state.members.find(state.seats[rank].member);
    wire->set_host(node.host);
    wire->set_address(node.address);
    wire->set_nproc(node.nproc);
    if (member != state.members.end()) write(member->second, now, wire);
    wire->set_state(state_of(state.seats[rank]));
    wire->set_group_rank(static_cast<int>(rank));
    wire->set_first_rank(node.first_rank);
  }
}

void write_spares(const State& state, Millis now, v1::RunStatus* status) {
  std::vector<const Member*> spares;
  for (const auto& [id, member] : state.members)
    if (state.phase == Phase::kGathering || member.seat < 0) spares.push_back(&member);
  std::sort(spares.begin(), spares.end(),
            [](const Member* a, const Member* b) { return a->order < b->order; });
  for (const Member* spare : spares) {
    v1::MemberStatus* wire = status->add_members();
    write(*spare, now, wire);
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
  if (state.settings) {
    status.set_run_id(state.settings->run_id);
    status.set_min_nodes(state.settings->min_nodes);
    status.set_max_nodes(state.settings->max_nodes);
    status.set_max_restarts(state.settings->max_restarts);
  }
  if (state.membership) {
    status.set_world_size(state.membership->world_size);
    status.set_generation_age_s(seconds(now - state.started_at));
    status.set_reason(state.phase == Phase::kRunning ? state.membership->reason : state.why);
  }
  if (state.result) status.set_exit_code(state.result->exit_code);
  if (state.restart_at != kNever) status.set_restart_in_s(seconds(state.restart_at - now));
  if (state.membership && state.phase != Phase::kGathering) write_seats(state, now, &status);
  write_spares(state, now, &status);
  Progress newest;
  for (const auto& [id, member] : state.members)
    if (member.report.progress.step >= newest.step) newest = member.report.progress;
  if (newest.total_steps > 0) to_wire(newest, status.mutable_progress());
  return status;
}

}  // namespace dtrun::rendezvous
