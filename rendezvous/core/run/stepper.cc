// The order of things in one step: first the event's own effect on the state, then the consequences of state
// and time. Silent and away members are given up before anything is concluded, so that a broken generation
// whose last open seat has just gone is concluded in the same step; a generation that is concluded gathers in
// the same step, and may start. News of members are sent after the order to stop that follows from them, and
// before the next generation. The count of members is announced last. The time until the event belongs to
// what the run was doing before it.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "proto/core/text.h"
#include "proto/core/utf8.h"
#include "rendezvous/core/run/gathering.h"
#include "rendezvous/core/run/joining.h"
#include "rendezvous/core/run/leaving.h"
#include "rendezvous/core/run/state.h"
#include "rendezvous/core/run/stopping.h"
#include "rendezvous/core/run/turn.h"

namespace dtrun::rendezvous {
namespace {

double seconds(Millis time) { return static_cast<double>(time) / 1000; }

using Seconds = double Goodput::*;

// REQUIRES: the run has a member's settings, is not over, and no generation runs.
Seconds kind_of(const State& state) {
  if (state.phase == Phase::kStopping) {
    const Cause cause = state.current.cause;
    return cause == Cause::kNewcomer || cause == Cause::kWorkersBack ? &Goodput::rendezvous : &Goodput::down;
  }
  if (state.deadlines.restart != kNever) return &Goodput::down;
  return state.members.size() < state.settings->min_nodes ? &Goodput::waiting : &Goodput::rendezvous;
}

// Charges the time since state.charged_until to one of the two.
void charge(const State& state, Millis now, Goodput& spent, GenerationTime& generation) {
  const Millis passed = now - state.charged_until;
  if (!state.settings || state.phase == Phase::kOver || passed <= 0) return;
  if (state.phase == Phase::kRunning)
    generation.ran += passed;
  else
    spent.*kind_of(state) += seconds(passed);
}

// Null once the run is over.
const GoodputKind* kind_now(const State& state) {
  if (state.phase == Phase::kOver) return nullptr;
  const bool trainer = state.settings->command.empty();
  const Seconds now = state.phase == Phase::kRunning
                          ? kind_of(state.current.time, state.spent.best_step, trainer)
                          : kind_of(state);
  return &*std::ranges::find(kGoodputKinds, now, &GoodputKind::seconds);
}

constexpr std::size_t kLongestHost = 100;  // in a text for people

class Stepper {
 public:
  Stepper(State& state, Millis now) : s_(state), turn_(state, now) {}

  std::vector<Action> run(const Event& event) {
    charge(s_, turn_.now(), s_.spent, s_.current.time);
    s_.charged_until = std::max(turn_.now(), s_.charged_until);
    handle(event);
    advance();
    record();
    return turn_.actions();
  }

 private:
  void handle(const Event& event);
  void on_heartbeat(Member& member, std::int64_t generation, const Heartbeat& heartbeat);
  void compare_workers(const Heartbeat& heartbeat);
  void look_for_no_progress(const Heartbeat& heartbeat);
  void on_ready(Member& member);
  std::optional<int> open_seat_of(const Member& sender, std::int64_t generation) const;
  void advance();
  void record();

  State& s_;
  Turn turn_;
  Stopping stopping_{turn_};
  Leaving leaving_{turn_, stopping_};
  Gathering gathering_{turn_, stopping_};
  Joining joining_{turn_, stopping_, leaving_};
};

void Stepper::handle(const Event& event) {
  if (const auto* join = std::get_if<Join>(&event.body))
    return joining_.on_join(event.from, event.generation, *join);
  Member* member = s_.members.find(event.from);
  if (member == nullptr) return;  // refused, replaced or gone before
  if (const auto* broken = std::get_if<StreamBroken>(&event.body))
    return leaving_.lose_touch(event.from, broken->why.empty() ? "lost its connection" : broken->why);
  member->last_seen = turn_.now();
  member->overdue_since.reset();
  if (const auto* leave = std::get_if<Leave>(&event.body)) return leaving_.leave(event.from, *leave);
  if (const auto* heartbeat = std::get_if<Heartbeat>(&event.body))
    return on_heartbeat(*member, event.generation, *heartbeat);
  if (std::holds_alternative<Ready>(event.body)) return on_ready(*member);
  const std::optional<int> rank = open_seat_of(*member, event.generation);
  if (!rank) return;
  if (const auto* failure = std::get_if<Failure>(&event.body)) stopping_.on_failure(*rank, *failure);
  if (const auto* stopped = std::get_if<Stopped>(&event.body)) stopping_.on_stopped(*rank, *stopped);
  if (std::holds_alternative<Finished>(event.body)) s_.current.seats.set_finished(*rank);
}

void Stepper::on_heartbeat(Member& member, std::int64_t generation, const Heartbeat& heartbeat) {
  member.report = heartbeat;
  if (s_.phase == Phase::kRunning && member.seat && generation == s_.generation) compare_workers(heartbeat);
  if (generation == s_.generation) look_for_no_progress(heartbeat);
  if (!turn_.in_generation() || !member.seat || !heartbeat.progress) return;
  s_.current.step = std::max(s_.current.step, heartbeat.progress->step);
  if (*member.seat != 0 || generation != s_.generation) return;
  s_.history.add(*heartbeat.progress, generation, turn_.now());
  s_.current.time.report = heartbeat.progress;
  s_.current.time.reported_at = s_.current.time.ran;
}

void Stepper::compare_workers(const Heartbeat& heartbeat) {
  const Membership& membership = *s_.current.membership;
  const auto host_of = [&membership](int rank) {
    const auto has = [rank](const Node& node) {
      return node.first_rank <= rank && rank < node.first_rank + node.nproc;
    };
    const auto node = std::ranges::find_if(membership.nodes, has);
    return node == membership.nodes.end() ? std::string()
                                          : printable_line(shortened(node->host, kLongestHost));
  };
  for (const WorkerReport& report : heartbeat.workers) {
    if (!report.times) continue;
    const std::int64_t windows = s_.stragglers.windows();
    const auto news =
        s_.stragglers.take(report.rank, membership.world_size, *report.times, host_of, turn_.now());
    if (s_.stragglers.windows() > windows)
      s_.history.add_column(s_.stragglers.ratios(), s_.generation, turn_.now());
    if (!news) continue;
    if (!news->text.empty()) s_.verdict = news;
    s_.history.tell("straggler", news->text, s_.generation, turn_.now());
    for (const auto& [id, member] : s_.members) turn_.say(id, *news);
  }
}

void Stepper::look_for_no_progress(const Heartbeat& heartbeat) {
  const bool overdue = std::ranges::any_of(
      heartbeat.workers, [](const WorkerReport& worker) { return worker.quiet && worker.quiet->overdue; });
  NoProgress& watch = s_.current.no_progress;
  if (s_.phase != Phase::kRunning || !watch.due(overdue, turn_.now())) return;
  if (const std::optional<News> news = watch.look(turn_.rank_reports(), turn_.now()))
    turn_.note(news->kind, news->host, news->text);
}

void Stepper::on_ready(Member& member) {
  member.workers = member.join.nproc;
  s_.current.newcomer = turn_.in_generation();
}

// The sender's seat in the generation that it speaks of; none if that is over, or the seat is not open.
std::optional<int> Stepper::open_seat_of(const Member& sender, std::int64_t generation) const {
  const bool current = turn_.in_generation() && generation == s_.generation;
  if (!current || !sender.seat || !s_.current.seats[*sender.seat].open()) return std::nullopt;
  return sender.seat;
}

void Stepper::advance() {
  leaving_.advance();
  turn_.tell_news();
  gathering_.take_newcomer();
  stopping_.advance();
  if (s_.phase == Phase::kGathering) gathering_.gather();
  gathering_.announce();
}

// What the time goes to, and the run's own events: each phase and generation that it enters.
void Stepper::record() {
  if (s_.settings) s_.history.spend(kind_now(s_), turn_.now());
  const std::pair stands{s_.phase, s_.generation};
  if (stands == s_.recorded) return;
  s_.recorded = stands;
  const Generation& current = s_.current;
  const bool failed = current.cause == Cause::kFailure || current.cause == Cause::kLoss;
  if (s_.phase == Phase::kRunning)
    s_.history.tell("generation", current.membership->reason, s_.generation, turn_.now());
  if (s_.phase == Phase::kStopping && failed)
    s_.history.tell_failure(current.why, current.failures.first(current.cause == Cause::kLoss), s_.generation,
                            turn_.now());
  else if (s_.phase == Phase::kStopping)
    s_.history.tell("stopping", current.why, s_.generation, turn_.now());
  if (s_.phase == Phase::kOver) s_.history.tell("over", s_.result->reason, s_.generation, turn_.now());
}

}  // namespace

std::vector<Action> step(State& state, const Event& event, Millis now) {
  return Stepper(state, now).run(event);
}

Goodput goodput_of(const State& state, Millis now) {
  Goodput spent = state.spent;
  GenerationTime generation = state.current.time;
  charge(state, now, spent, generation);
  return state.settings ? with_generation(spent, generation, state.settings->command.empty()) : spent;
}

Millis next_deadline(const State& state) {
  return std::min(state.deadlines.earliest(), state.current.seats.deadline());
}

}  // namespace dtrun::rendezvous
