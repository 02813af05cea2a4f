#include "rendezvous/core/run/stopping.h"

#include <algorithm>
#include <utility>

#include "proto/core/exit_codes.h"
#include "proto/core/text.h"

namespace dtrun::rendezvous {
namespace {

// Workers that were told to stop agree with their peers on a last step and save it: the peers get this long
// to do the same before they are ordered to stop.
constexpr Millis kStopTogether = 10000;
// How long all members that stopped by themselves wait for the one that was told to stop to leave.
constexpr Millis kSettle = 2000;

}  // namespace

void Stopping::advance() {
  if (s_.phase == Phase::kRunning && s_.current.seats.all_finished()) succeed();
  if (s_.phase == Phase::kStopping && now_ >= s_.deadlines.stop_order) order_stop();
  if (s_.phase == Phase::kStopping && s_.current.seats.open() == 0) conclude();
}

// A member is believed about its own workers only: a word on another's could end the job in that one's name.
bool Stopping::is_of(int rank, const WorkerOutcome& outcome) const {
  const Node& node = s_.current.membership->nodes[rank];
  const Member* member = s_.members.find(*s_.current.seats[rank].member);
  return outcome.rank >= node.first_rank && outcome.rank - node.first_rank < member->join.nproc;
}

// True if a worker that fails now counts as a victim: the generation was broken by something other than a
// worker failure, or a peer is out of touch.
bool Stopping::explained() const {
  return (s_.phase == Phase::kStopping && s_.current.cause != Cause::kFailure) || s_.current.seats.away() > 0;
}

// True for a member whose workers did not outlive that it made room, although none failed. It starts all of
// them with the next generation: left out, it would have the others make room for it, and they would be left
// out.
bool Stopping::ended_to_make_room(const Stopped& stopped) const {
  const bool makes_room = s_.current.cause == Cause::kNewcomer || s_.current.cause == Cause::kWorkersBack;
  return makes_room && stopped.workers == 0 &&
         std::ranges::all_of(stopped.outcomes, &WorkerOutcome::collateral);
}

// The sender's seat stays open: its other workers still run until Stopped.
void Stopping::on_failure(int rank, const Failure& failure) {
  if (!is_of(rank, failure.outcome)) return;
  s_.current.failures.note(failure.outcome, explained());
  // Workers that outlive generations tell by their heartbeats which of them is at fault.
  if (s_.phase == Phase::kRunning) {
    s_.current.waits = waits_text(turn_.rank_reports());
    s_.current.look = failure.outcome.cause == EndCause::kHung && !s_.settings->in_memory_recovery;
  }
  if (!is_failure(failure.outcome))
    break_generation(Cause::kStoppedByItself, failure.outcome.host + " stopped by itself");
  else
    break_generation(Cause::kFailure, describe(failure.outcome));
}

void Stopping::on_stopped(int rank, const Stopped& stopped) {
  s_.current.seats.set_stopped(rank);
  Member& member = s_.members.at(*s_.current.seats[rank].member);
  const bool all = !member.join.in_memory_recovery || !stopped.workers || ended_to_make_room(stopped);
  member.workers = all ? member.join.nproc : std::clamp(*stopped.workers, 0, member.join.nproc);
  for (const WorkerOutcome& outcome : stopped.outcomes) {
    if (!is_of(rank, outcome)) continue;
    s_.current.failures.note(outcome, explained());
    if (is_failure(outcome) && !outcome.collateral) break_generation(Cause::kFailure, describe(outcome));
  }
  const std::string& host = s_.current.membership->nodes[rank].host;
  stopped.parted ? break_generation(Cause::kLoss, host + " was out of touch")
                 : break_generation(Cause::kStoppedByItself, host + " stopped by itself");
}

void Stopping::break_generation(Cause cause, const std::string& why) {
  if (s_.phase == Phase::kStopping && cause != Cause::kStoppedByItself) return order_overdue_stop();
  if (s_.phase != Phase::kRunning) return;
  s_.phase = Phase::kStopping;
  s_.current.cause = cause;
  s_.current.why = why;
  s_.current.after_step =
      s_.settings->in_memory_recovery && (cause == Cause::kNewcomer || cause == Cause::kWorkersBack);
  s_.current.seats.wait_at_most_until(now_ + kReturnWhileStopping);
  if (cause == Cause::kStoppedByItself)
    s_.deadlines.stop_order = now_ + kStopTogether;
  else
    order_stop();
}

StopOrder Stopping::stop_order() const {
  return {.reason = s_.current.why, .look = s_.current.look, .after_step = s_.current.after_step};
}

void Stopping::order_stop() {
  s_.deadlines.stop_order = kNever;
  for (const Seat& seat : s_.current.seats)
    if (seat.member && !seat.stopped) turn_.say(*seat.member, stop_order());
}

// Something worse happened while the members were stopping by themselves, or after a last step.
void Stopping::order_overdue_stop() {
  const bool gently = std::exchange(s_.current.after_step, false);
  if (gently || s_.deadlines.stop_order != kNever) order_stop();
}

// All members of the broken generation have stopped or are gone: does the job go on?
void Stopping::conclude() {
  Generation& current = s_.current;
  if (current.seats.all_finished()) return succeed();
  const WorkerOutcome* first =
      current.failures.first(current.lost_member || current.cause != Cause::kFailure);
  if ((first == nullptr || first->retryable) && ends_by_hand()) return;
  if (first == nullptr) {
    if (!settling()) gather_again(0);
    return;
  }
  const std::optional<Hang> hang = hang_of(*first);
  const RestartPolicy::Decision decision =
      s_.policy.judge(*first, s_.settings->restarts, now_ - current.started_at, current.step,
                      hang ? describe(*hang) : describe(*first) + why_lost(*first), workers_are_left());
  if (!decision.restart) return end_job(exit_code_of(*first), decision.reason, first, hang);
  current.why = decision.reason;
  current.worker_failure = true;
  gather_again(decision.delay);
}

// Some that outlived the generation.
bool Stopping::workers_are_left() const {
  return s_.settings->in_memory_recovery &&
         std::ranges::any_of(s_.members, [](const auto& member) { return member.second.workers > 0; });
}

// Of a worker that gave a peer up: the one that it waited for.
std::string Stopping::why_lost(const WorkerOutcome& first) const {
  const bool lost = first.exit_code == kExitWorkerPeerLost && first.signal == 0;
  return lost && !s_.current.waits.empty() ? " as " + s_.current.waits : "";
}

// Nothing if `first` did not hang. The order in which workers are reported does not tell a hang's cause.
std::optional<Hang> Stopping::hang_of(const WorkerOutcome& first) {
  if (first.cause != EndCause::kHung || first.activity == Activity::kUnseen) return std::nullopt;
  Hang hang = judge_hang(s_.current.failures.locations(), first.error);
  if (!s_.current.waits.empty()) hang.verdict = s_.current.waits;
  s_.current.failures.set_hung(hang.ranks);
  return hang;
}

// True while it is worth waiting for the member that was told to stop to leave; its peers stopped with it.
bool Stopping::settling() {
  if (s_.current.cause != Cause::kStoppedByItself) return false;
  if (s_.deadlines.settle == kNever) s_.deadlines.settle = now_ + kSettle;
  return now_ < s_.deadlines.settle;
}

// Ctrl-C is a person's decision: if too few nodes are left, the run does not wait for another one. False if
// the job goes on.
bool Stopping::ends_by_hand() {
  const Settings& run = *s_.settings;
  const bool too_few = s_.members.size() + s_.current.seats.away() < run.min_nodes;
  if (s_.current.stopped_by_hand.empty() || !too_few) return false;
  const std::string needs = run.min_nodes == run.max_nodes
                                ? "--nnodes " + std::to_string(run.min_nodes) + " needs all nodes"
                                : "--nnodes " + std::to_string(run.min_nodes) + ":" +
                                      std::to_string(run.max_nodes) + " needs " +
                                      counted(run.min_nodes, "node");
  end_job(kExitUnavailable, s_.current.stopped_by_hand + " was stopped by SIGINT (Ctrl-C), and " + needs,
          nullptr);
  return true;
}

void Stopping::gather_again(Millis delay) {
  s_.phase = Phase::kGathering;
  s_.deadlines.settle = s_.deadlines.stop_order = kNever;
  s_.deadlines.join = now_ + delay + s_.settings->join_timeout;
  s_.deadlines.restart = delay > 0 ? now_ + delay : kNever;
  if (delay > 0) s_.announced.reset();  // the members are told of the delay at once
  turn_.count_changed();
}

void Stopping::succeed() {
  end_job(kExitOk, "all workers of " + counted(s_.current.seats.size(), "node") + " succeeded", nullptr);
}

void Stopping::end_job(int exit_code, const std::string& reason, const WorkerOutcome* first,
                       const std::optional<Hang>& hang) {
  if (hang) first = s_.current.failures.culprit(*hang);
  auto result = std::make_shared<JobEnd>();
  result->exit_code = exit_code;
  result->reason = s_.current.why = reason;
  result->restart_count = s_.policy.restarts();
  result->membership_changes = s_.membership_changes;
  result->goodput = goodput_of(s_, now_);
  result->hang = hang;
  result->verdict = s_.stragglers.verdict() ? s_.stragglers.verdict() : s_.verdict;
  if (exit_code != kExitOk) result->followers = s_.current.failures.followers(first);
  if (result->followers.size() > kMaxFollowers) {
    result->more_followers = static_cast<int>(result->followers.size() - kMaxFollowers);
    result->followers.resize(kMaxFollowers);
  }
  if (first != nullptr) result->first_failure = *first;
  for (const auto& [id, member] : s_.members) turn_.say(id, Ended{result});
  s_.result = std::move(result);
  s_.phase = Phase::kOver;
  s_.over_at = now_;
  s_.deadlines = {.sweep = s_.deadlines.sweep};
}

}  // namespace dtrun::rendezvous
