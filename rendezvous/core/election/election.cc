// The order of things in one step: a lease that has run out ends the leadership before anything else is
// looked at; then the event; then what is due.
#include "rendezvous/core/election/election.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace dtrun::rendezvous::election {
namespace {

// Terms stay below it, and leave room for a round of any number of hosts.
constexpr Term kLast = std::numeric_limits<Term>::max() - kFurthest;

class Stepper {
 public:
  Stepper(State& state, Millis now) : s_(state), set_(state.settings), now_(now) {}

  std::vector<Action> run(const Event& event) {
    if (s_.role == State::kLeader && now_ >= leads_until(s_)) lose_lead();
    std::visit([&](const auto& body) { on(event.from, body); }, event.body);
    advance();
    return std::move(actions_);
  }

 private:
  void on(int, const Tick&) {}
  void on(int from, const VoteRequest& ask);
  void on(int from, const VoteReply& answer);
  void on(int, const Write& write);
  void on(int, const ObservedTerm& heard);
  void on(int, const Resign& resign);
  void on(int, const Retire&);

  void say(int to, decltype(Action::body) body) { actions_.push_back({.to = to, .body = std::move(body)}); }
  bool is_host(int host) const { return host >= 0 && host < set_.hosts && host != set_.self; }
  Peer& peer(int host) { return s_.peers[static_cast<std::size_t>(host)]; }
  Millis own_stagger() const { return set_.stagger * set_.self; }

  bool grants(int from, const VoteRequest& ask) const;
  void note_delay(bool same_term);
  void bind(int from, const VoteRequest& ask);
  void take_record(const VoteRequest& ask);
  void stop_leading();
  void lose_lead();
  void step_down_voters();
  void add_record(int host, VoteRequest* ask);

  void advance();
  void stand();
  void rest(Millis after);
  void ask_all();
  bool answered_by_enough(Millis since) const;
  bool sure_that_alone() const;
  bool succeeds_itself() const;
  void ask_for_votes();
  void become_leader();
  void count_written();
  void extend();

  State& s_;
  const Settings& set_;
  const Millis now_;
  std::vector<Action> actions_;
};

// ---- as a voter

// A leader that renews has a majority's votes, so this host's promise to another one no longer protects
// anything. If two hosts want to lead, one gives in.
bool Stepper::grants(int from, const VoteRequest& ask) const {
  const bool again = ask.term == s_.bound_term && from == s_.bound_to;
  if (ask.term <= s_.bound_term && !again) return false;
  if (ask.kind == VoteRequest::kRenew) return s_.role != State::kLeader || ask.term > s_.term;
  const bool bound = now_ < s_.abstains_until || (now_ < s_.bound_until && from != s_.bound_to);
  const bool rivals =
      s_.role == State::kCandidate || (s_.role == State::kPreCandidate && ask.kind == VoteRequest::kPreVote);
  return !bound && !(rivals && ask.term < s_.term);
}

void Stepper::on(int from, const VoteRequest& ask) {
  if (!is_host(from)) return;
  if (ask.kind == VoteRequest::kStepDown) {
    if (from != s_.bound_to || ask.term != s_.bound_term) return;
    take_record(ask);
    s_.bound_until = std::min(s_.bound_until, now_);
    s_.leader = {};
    if (s_.role == State::kFollower) rest(0);
    return;
  }
  const bool granted = grants(from, ask);
  if (granted && ask.kind != VoteRequest::kPreVote) bind(from, ask);
  VoteReply answer{.kind = ask.kind,
                   .term = ask.term,
                   .sent_at = ask.sent_at,
                   .granted = granted,
                   .newest = s_.newest,
                   .record_version = s_.record.record_version};
  if (granted && ask.kind == VoteRequest::kRequestVote) answer.record = s_.record;
  say(from, std::move(answer));
}

void Stepper::bind(int from, const VoteRequest& ask) {
  if (s_.role == State::kLeader) stop_leading();
  s_.newest = std::max(s_.newest, ask.term);
  note_delay(ask.kind == VoteRequest::kRenew && ask.term == s_.bound_term);
  if (from != s_.bound_to) s_.abstains_until = std::max(s_.abstains_until, s_.bound_until);
  s_.bound_to = from;
  s_.bound_term = ask.term;
  s_.bound_until = now_ + set_.lease;
  rest(0);
  s_.leader = ask.kind == VoteRequest::kRenew && ask.serves ? Leader{ask.term, from} : Leader{};
  if (s_.leader.term != 0 && std::exchange(s_.served, 0) != 0) say(-1, Forget{});
  take_record(ask);
}

// A change of the leader interrupts a job for longer than a leader that is late.
void Stepper::note_delay(bool same_term) {
  const Millis before = std::exchange(s_.renewed_at, now_);
  const Millis delay = same_term && before > 0 ? now_ - before - set_.renew : 0;
  if (now_ - s_.delayed_at >= set_.remembers) s_.patience = 0;
  if (2 * delay < s_.patience || delay < set_.retry) return;
  s_.patience = std::min(2 * delay, set_.most_patience);
  s_.delayed_at = now_;
}

void Stepper::take_record(const VoteRequest& ask) {
  if (ask.record) s_.record = {ask.record->record_version, set_.merge(s_.record.text, ask.record->text)};
}

// ---- as a leader

void Stepper::stop_leading() {
  s_.role = State::kFollower;
  if (std::exchange(s_.serves, false)) say(-1, StepDown{});
  s_.leader = {};
  s_.bound_until = std::min(s_.bound_until, now_);
}

// The network does not let this host lead: it leaves the others a lease's time to stand. One that was
// stopped, or got no processor, stands at once: its voters may not have noticed yet.
void Stepper::lose_lead() {
  const bool was_late = now_ - s_.bound_until >= set_.renew;
  stop_leading();
  rest(was_late ? 0 : set_.lease);
}

// The release carries the newest record: a driver sends a host only the newest of the unsent asks.
void Stepper::step_down_voters() {
  for (int host = 0; host < set_.hosts; ++host) {
    if (host == set_.self) continue;
    VoteRequest ask{.kind = VoteRequest::kStepDown, .term = s_.term, .sent_at = now_};
    add_record(host, &ask);
    say(host, std::move(ask));
  }
}

void Stepper::add_record(int host, VoteRequest* ask) {
  if (peer(host).record_version != s_.record.record_version) ask->record = s_.record;
}

void Stepper::on(int, const Write& write) {
  if (!s_.serves || write.term != s_.term) return;
  s_.record = {{s_.term, s_.record.record_version.version + 1}, write.text};
  ask_all();
  count_written();
}

// A leader below a term that members have followed is not obeyed: it needs a higher one.
void Stepper::on(int, const ObservedTerm& heard) {
  const Term believed = std::min(heard.term, std::min(s_.newest, kLast - kFurthest) + kFurthest);
  s_.newest = std::max(s_.newest, believed);
  if (s_.role == State::kFollower || believed <= s_.term) return;
  if (s_.role == State::kLeader) {
    step_down_voters();
    stop_leading();
  }
  rest(0);
}

void Stepper::on(int, const Resign& resign) {
  if (s_.role != State::kLeader || resign.term != s_.term) return;
  step_down_voters();
  lose_lead();
}

void Stepper::on(int from, const Retire&) {
  on(from, Resign{s_.term});
  s_.role = State::kFollower;
  s_.retired = true;
  s_.stands_at = kNever;
}

// ---- as a candidate

void Stepper::on(int from, const VoteReply& answer) {
  if (!is_host(from)) return;
  s_.newest = std::max(s_.newest, answer.newest);
  if (s_.role == State::kFollower || answer.term != s_.term) return;
  // The term is used up: a voter has heard of it, or of a higher one, so it will not vote in it, or it
  // already has, for this host before a restart.
  const bool used = s_.role == State::kPreCandidate && answer.newest >= s_.term;
  const bool late = s_.role == State::kCandidate && !answer.granted && answer.newest > s_.term;
  if (used || late) return rest(0);
  if (!answer.granted) {
    if (s_.role == State::kPreCandidate && set_.needed == 1) rest(set_.retry);
    return;
  }
  const bool of_probe = answer.kind == VoteRequest::kPreVote;
  if (of_probe != (s_.role == State::kPreCandidate)) return;
  Peer& voter = peer(from);
  if (voter.granted && *voter.granted > answer.sent_at) return;  // overtaken
  voter.granted = answer.sent_at;
  voter.record_version = answer.record_version;  // a lower one than before if it was started anew
  if (s_.role == State::kPreCandidate) {
    if (answered_by_enough(now_ - set_.lease / 2) && sure_that_alone()) ask_for_votes();
  } else if (s_.role == State::kCandidate) {
    if (answer.record) s_.record.text = set_.merge(s_.record.text, answer.record->text);
    if (answered_by_enough(now_ - set_.held + 1)) become_leader();
  } else {
    extend();
    count_written();
  }
}

// True if enough others granted asks that were sent at `since` or later.
bool Stepper::answered_by_enough(Millis since) const {
  const auto yes = std::ranges::count_if(
      s_.peers, [&](const Peer& peer) { return peer.granted && *peer.granted >= since; });
  return yes >= set_.needed - 1;
}

// If one vote is enough, the other hosts are still asked first, as long as they can be reached.
bool Stepper::sure_that_alone() const {
  if (set_.needed > 1) return true;
  const auto yes = std::ranges::count_if(s_.peers, [](const Peer& peer) { return peer.granted.has_value(); });
  return yes == set_.hosts - 1 || now_ >= s_.tries_until;
}

void Stepper::stand() {
  s_.role = State::kPreCandidate;
  s_.term = (std::min(s_.newest, kLast) / set_.hosts + 1) * set_.hosts + set_.self;
  s_.tries_until = now_ + (set_.needed > 1 ? set_.lease : set_.lease / 2);
  s_.peers.assign(static_cast<std::size_t>(set_.hosts), {});
  ask_all();
}

void Stepper::rest(Millis after) {
  s_.role = State::kFollower;
  const Millis free_at = std::max(s_.bound_until, s_.abstains_until);
  s_.stands_at = s_.retired ? kNever : std::max(free_at, now_ + after) + own_stagger() + s_.patience;
}

void Stepper::ask_for_votes() {
  s_.role = State::kCandidate;
  s_.tries_until = now_ + set_.lease / 2;
  s_.peers.assign(static_cast<std::size_t>(set_.hosts), {});
  ask_all();
  if (set_.needed == 1) become_leader();
}

// Asks every host whose answer is needed. A host that has voted is not asked again: that would bind its vote
// for longer, and the election may fail.
void Stepper::ask_all() {
  const VoteRequest::Kind kind = s_.role == State::kPreCandidate ? VoteRequest::kPreVote
                                 : s_.role == State::kCandidate  ? VoteRequest::kRequestVote
                                                                 : VoteRequest::kRenew;
  for (int host = 0; host < set_.hosts; ++host) {
    if (host == set_.self || (kind == VoteRequest::kRequestVote && peer(host).granted)) continue;
    VoteRequest ask{.kind = kind, .term = s_.term, .sent_at = now_};
    if (kind == VoteRequest::kRenew) {
      ask.serves = s_.serves;
      add_record(host, &ask);
    }
    say(host, std::move(ask));
  }
  s_.asks_at = now_ + (kind == VoteRequest::kRenew ? set_.renew : set_.retry);
}

// A host that served since then had a majority's votes, and at least one of the present voters has its
// record. A term tells which host led.
bool Stepper::succeeds_itself() const {
  const auto later = [&](const RecordVersion& record_version) {
    return record_version.term > s_.served && record_version.term % set_.hosts != set_.self;
  };
  const auto voted = [](const Peer& peer) { return peer.granted.has_value(); };
  return s_.served > 0 && 1 + std::ranges::count_if(s_.peers, voted) + set_.needed > set_.hosts &&
         !later(s_.record.record_version) && std::ranges::none_of(s_.peers, [&](const Peer& peer) {
           return voted(peer) && later(peer.record_version);
         });
}

void Stepper::become_leader() {
  if (!succeeds_itself()) s_.served = 0;
  s_.role = State::kLeader;
  s_.newest = std::max(s_.newest, s_.term);
  s_.bound_to = set_.self;
  s_.bound_term = s_.term;
  s_.bound_until = 0;
  s_.record.record_version = {s_.term, 1};
  s_.written = 0;
  extend();
  ask_all();
  count_written();
}

// The leader's own vote binds it as long as those of the others.
void Stepper::extend() {
  if (set_.needed == 1) {
    s_.bound_until = kNever;
    return;
  }
  std::vector<Millis> until;
  for (const Peer& peer : s_.peers)
    if (peer.granted) until.push_back(*peer.granted + set_.held);
  const auto last = static_cast<std::size_t>(set_.needed - 2);
  if (until.size() <= last) return;
  std::ranges::nth_element(until, until.begin() + static_cast<std::ptrdiff_t>(last), std::greater());
  s_.bound_until = std::max(s_.bound_until, until[last]);
}

void Stepper::count_written() {
  const RecordVersion& record_version = s_.record.record_version;
  if (s_.written == record_version.version) return;
  const auto have = std::ranges::count_if(
      s_.peers, [&](const Peer& peer) { return peer.record_version == record_version; });
  if (have < set_.needed - 1) return;
  s_.written = record_version.version;
  if (s_.serves) return say(-1, Written{s_.written});
  s_.serves = true;
  s_.leader = {s_.term, set_.self};
  const bool again = std::exchange(s_.served, s_.term) != 0;
  say(-1, BecomeLeader{s_.term, s_.record.text, again});
  ask_all();
}

void Stepper::advance() {
  if (s_.retired) return;
  if (s_.role == State::kFollower) {
    if (now_ >= s_.stands_at) stand();
  } else if (s_.role == State::kLeader) {
    if (now_ >= s_.asks_at) ask_all();
  } else if (now_ >= s_.tries_until) {
    if (s_.role == State::kPreCandidate && set_.needed == 1) return ask_for_votes();
    rest(s_.role == State::kCandidate ? set_.lease / 2 : 0);
  } else if (now_ >= s_.asks_at) {
    ask_all();
  }
}

}  // namespace

Settings settings_for(int hosts, int self, bool alone, Merge merge) {
  return {.hosts = hosts, .self = self, .needed = alone ? 1 : hosts / 2 + 1, .merge = merge};
}

State begin(const Settings& settings, Millis now) {
  State state;
  state.settings = settings;
  state.peers.resize(static_cast<std::size_t>(settings.hosts));
  state.abstains_until = now + settings.abstain;
  state.stands_at = state.abstains_until + settings.stagger * settings.self;
  return state;
}

std::vector<Action> step(State& state, const Event& event, Millis now) {
  return Stepper(state, now).run(event);
}

Millis next_deadline(const State& s) {
  switch (s.role) {
    case State::kFollower:
      return s.stands_at;
    case State::kPreCandidate:
    case State::kCandidate:
      return std::min(s.asks_at, s.tries_until);
    case State::kLeader:
      return std::min(s.asks_at, s.bound_until);
  }
  return kNever;
}

Millis leads_until(const State& state) { return state.role == State::kLeader ? state.bound_until : 0; }

Leader known_leader(const State& state, Millis now) {
  return now < state.bound_until ? state.leader : Leader{};
}

}  // namespace dtrun::rendezvous::election
