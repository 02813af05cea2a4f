// The order of things in one step: first the event's own effect on the state, then the consequences of state
// and time. Silent and away members are given up before anything is concluded, so that a broken generation
// whose last open seat has just gone is concluded in the same step; a generation that is concluded gathers in
// the same step, and may start. News of members are sent after the order to stop that follows from them, and
// before the next generation. The count of members is announced last.
#include "rendezvous/core/run/stepper.h"

namespace dtrun::rendezvous {

std::vector<Action> step(State& state, const Event& event, Millis now) {
  return Stepper(state, now).run(event);
}

Millis next_deadline(const State& state) {
  return std::min(state.deadlines.earliest(), state.current.seats.deadline());
}

void Stepper::handle(const Event& event) {
  if (const auto* join = std::get_if<Join>(&event.body)) return on_join(event.from, event.generation, *join);
  Member* member = s_.members.find(event.from);
  if (member == nullptr) return;  // refused, replaced or gone before
  if (const auto* broken = std::get_if<StreamBroken>(&event.body))
    return lose_touch(event.from, broken->why.empty() ? "lost its connection" : broken->why);
  member->last_seen = now_;
  member->overdue_since.reset();
  if (const auto* leave = std::get_if<Leave>(&event.body)) return this->leave(event.from, *leave);
  if (const auto* heartbeat = std::get_if<Heartbeat>(&event.body)) return on_heartbeat(*member, *heartbeat);
  if (std::holds_alternative<Ready>(event.body)) return on_ready(*member);
  const std::optional<int> rank = open_seat_of(*member, event.generation);
  if (!rank) return;
  if (const auto* failure = std::get_if<Failure>(&event.body)) on_failure(*rank, *failure);
  if (const auto* stopped = std::get_if<Stopped>(&event.body)) on_stopped(*rank, *stopped);
  if (std::holds_alternative<Finished>(event.body)) s_.current.seats.set_finished(*rank);
}

void Stepper::say(ConnectionId to, decltype(Action::body) body) {
  actions_.push_back({.to = to, .generation = s_.generation, .body = std::move(body)});
}

// Members that don't know it yet are told in this step.
void Stepper::note(News::Kind kind, const std::string& host, const std::string& text) {
  const News news{.kind = kind, .host = host, .text = text, .age = 0};
  if (s_.news.note(news, now_)) news_.push_back(news);
  // An agent that is started again at once joins before its predecessor is given up.
  const auto is_here = [&](const auto& member) {
    return member.second.join.host == host && !member.second.seat;
  };
  if (in_generation() && somebody_waits() && std::any_of(s_.members.begin(), s_.members.end(), is_here))
    s_.news.came(host);
}

void Stepper::tell_news() {
  if (s_.phase == Phase::kOver) return;
  const auto is_of = [](const News& news, const Member& member) {
    return news.kind == News::kBack && news.host == member.join.host;
  };
  for (const News& news : news_)
    for (const auto& [id, member] : s_.members)
      if (!is_of(news, member)) say(id, news);
}

void Stepper::on_heartbeat(Member& member, const Heartbeat& heartbeat) {
  member.report = heartbeat;
  if (in_generation() && member.seat) s_.current.step = std::max(s_.current.step, heartbeat.progress.step);
}

void Stepper::on_ready(Member& member) {
  member.workers = member.join.nproc;
  s_.current.newcomer = in_generation();
}

// The sender's seat in the generation that it speaks of; none if that is over, or the seat is not open.
std::optional<int> Stepper::open_seat_of(const Member& sender, std::int64_t generation) const {
  const bool current = in_generation() && generation == s_.generation;
  if (!current || !sender.seat || !s_.current.seats[*sender.seat].open()) return std::nullopt;
  return sender.seat;
}

void Stepper::advance() {
  sweep();
  give_up_away();
  give_up_predecessor();
  end_with_host();
  tell_news();
  take_newcomer();
  if (s_.phase == Phase::kRunning && s_.current.seats.all_finished()) succeed();
  if (s_.phase == Phase::kStopping && now_ >= s_.deadlines.stop_order) order_stop();
  if (s_.phase == Phase::kStopping && s_.current.seats.open() == 0) conclude();
  if (s_.phase == Phase::kGathering) gather();
  announce();
}

}  // namespace dtrun::rendezvous
