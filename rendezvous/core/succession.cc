// The order of things in one step: a lease that has run out ends the leadership before anything else is
// looked at; then the event; then what is due.
#include "rendezvous/core/succession.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace dtrun::rendezvous::succession {
namespace {

// Terms stay below it, and leave room for a round of any number of hosts.
constexpr Term kLast = std::numeric_limits<Term>::max() - kFurthest;

class Stepper {
 public:
  Stepper(State& state, Millis now) : s_(state), set_(state.settings), now_(now) {}

  std::vector<Action> run(const Event& event) {
    if (s_.role == State::kLeads && now_ >= leads_until(s_)) lose_lead();
    std::visit([&](const auto& body) { on(event.from, body); }, event.body);
    advance();
    return std::move(actions_);
  }

 private:
  void on(int, const Tick&) {}
  void on(int from, const Ask& ask);
  void on(int from, const Answer& answer);
  void on(int, const Write& write);
  void on(int, const Heard& heard);
  void on(int, const Resign& resign);
  void on(int, const Retire&);

  void say(int to, decltype(Action::body) body) { actions_.push_back({.to = to, .body = std::move(body)}); }
  bool is_host(int host) const { return host >= 0 && host < set_.hosts && host != set_.self; }
  Peer& peer(int host) { return s_.peers[static_cast<std::size_t>(host)]; }
  Millis own_stagger() const { return set_.stagger * set_.self; }

  bool grants(int from, const Ask& ask) const;
  void bind(int from, const Ask& ask);
  void take_record(const Ask& ask);
  void stop_leading();
  void lose_lead();
  void release_voters();
  void add_record(int host, Ask* ask);

  void advance();
  void stand();
  void rest(Millis after);
  void ask_all();
  bool answered_by_enough(Millis since) const;
  bool sure_that_alone() const;
  bool succeeds_itself() const;
  void ask_for_votes();
  void take_lead();
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
bool Stepper::grants(int from, const Ask& ask) const {
  const bool again = ask.term == s_.bound_term && from == s_.bound_to;
  if (ask.term <= s_.bound_term && !again) return false;
  if (ask.kind == Ask::kRenew) return s_.role != State::kLeads || ask.term > s_.term;
  const bool bound = now_ < s_.abstains_until || (now_ < s_.bound_until && from != s_.bound_to);
  const bool rivals = s_.role == State::kAsks || (s_.role == State::kProbes && ask.kind == Ask::kProbe);
  return !bound && !(rivals && ask.term < s_.term);
}

void Stepper::on(int from, const Ask& ask) {
  if (!is_host(from)) return;
  if (ask.kind == Ask::kRelease) {
    if (from != s_.bound_to || ask.term != s_.bound_term) return;
    take_record(ask);
    s_.bound_until = std::min(s_.bound_until, now_);
    s_.leader = {};
    if (s_.role == State::kFollows) rest(0);
    return;
  }
  const bool granted = grants(from, ask);
  if (granted && ask.kind != Ask::kProbe) bind(from, ask);
  Answer answer{.kind = ask.kind,
                .term = ask.term,
                .sent_at = ask.sent_at,
                .granted = granted,
                .newest = s_.newest,
                .stamp = s_.record.stamp};
  if (granted && ask.kind == Ask::kVote) answer.record = s_.record;
  say(from, std::move(answer));
}

void Stepper::bind(int from, const Ask& ask) {
  if (s_.role == State::kLeads) stop_leading();
  s_.newest = std::max(s_.newest, ask.term);
  if (from != s_.bound_to) s_.abstains_until = std::max(s_.abstains_until, s_.bound_until);
  s_.bound_to = from;
  s_.bound_term = ask.term;
  s_.bound_until = now_ + set_.lease;
  rest(0);
  s_.leader = ask.kind == Ask::kRenew && ask.serves ? Leader{ask.term, from} : Leader{};
  if (s_.leader.term != 0 && std::exchange(s_.served, 0) != 0) say(-1, Forget{});
  take_record(ask);
}

void Stepper::take_record(const Ask& ask) {
  if (ask.record) s_.record = {ask.record->stamp, set_.merge(s_.record.text, ask.record->text)};
}

// ---- as a leader

void Stepper::stop_leading() {
  s_.role = State::kFollows;
  if (std::exchange(s_.serves, false)) say(-1, StepDown{});
  s_.leader = {};
  s_.bound_until = std::min(s_.bound_until, now_);
}

// The network does not let this host lead: it leaves the others a lease's time to stand.
void Stepper::lose_lead() {
  stop_leading();
  rest(set_.lease);
}

// The release carries the newest record: a driver sends a host only the newest of the unsent asks.
void Stepper::release_voters() {
  for (int host = 0; host < set_.hosts; ++host) {
    if (host == set_.self) continue;
    Ask ask{.kind = Ask::kRelease, .term = s_.term, .sent_at = now_};
    add_record(host, &ask);
    say(host, std::move(ask));
  }
}

void Stepper::add_record(int host, Ask* ask) {
  if (peer(host).stamp != s_.record.stamp) ask->record = s_.record;
}

void Stepper::on(int, const Write& write) {
  if (!s_.serves || write.term != s_.term) return;
  s_.record = {{s_.term, s_.record.stamp.version + 1}, write.text};
  ask_all();
  count_written();
}

// A leader below a term that members have followed is not obeyed: it needs a higher one.
void Stepper::on(int, const Heard& heard) {
  const Term believed = std::min(heard.term, std::min(s_.newest, kLast - kFurthest) + kFurthest);
  s_.newest = std::max(s_.newest, believed);
  if (s_.role == State::kFollows || believed <= s_.term) return;
  if (s_.role == State::kLeads) {
    release_voters();
    stop_leading();
  }
  rest(0);
}

void Stepper::on(int, const Resign& resign) {
  if (s_.role != State::kLeads || resign.term != s_.term) return;
  release_voters();
  lose_lead();
}

void Stepper::on(int from, const Retire&) {
  on(from, Resign{s_.term});
  s_.role = State::kFollows;
  s_.retired = true;
  s_.stands_at = kNever;
}

// ---- as a candidate

void Stepper::on(int from, const Answer& answer) {
  if (!is_host(from)) return;
  s_.newest = std::max(s_.newest, answer.newest);
  if (s_.role == State::kFollows || answer.term != s_.term) return;
  // The term is used up: a voter has heard of it, or of a higher one, so it will not vote in it, or it
  // already has, for this host before a restart.
  const bool used = s_.role == State::kProbes && answer.newest >= s_.term;
  const bool late = s_.role == State::kAsks && !answer.granted && answer.newest > s_.term;
  if (used || late) return rest(0);
  if (!answer.granted) {
    if (s_.role == State::kProbes && set_.needed == 1) rest(set_.retry);
    return;
  }
  const bool of_probe = answer.kind == Ask::kProbe;
  if (of_probe != (s_.role == State::kProbes)) return;
  Peer& voter = peer(from);
  if (voter.granted && *voter.granted > answer.sent_at) return;  // overtaken
  voter.granted = answer.sent_at;
  voter.stamp = answer.stamp;  // a lower one than before if it was started anew
  if (s_.role == State::kProbes) {
    if (answered_by_enough(now_ - set_.lease / 2) && sure_that_alone()) ask_for_votes();
  } else if (s_.role == State::kAsks) {
    if (answer.record) s_.record.text = set_.merge(s_.record.text, answer.record->text);
    if (answered_by_enough(now_ - set_.held + 1)) take_lead();
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
  s_.role = State::kProbes;
  s_.term = (std::min(s_.newest, kLast) / set_.hosts + 1) * set_.hosts + set_.self;
  s_.tries_until = now_ + (set_.needed > 1 ? set_.lease : set_.lease / 2);
  s_.peers.assign(static_cast<std::size_t>(set_.hosts), {});
  ask_all();
}

void Stepper::rest(Millis after) {
  s_.role = State::kFollows;
  const Millis free_at = std::max(s_.bound_until, s_.abstains_until);
  s_.stands_at = s_.retired ? kNever : std::max(free_at, now_ + after) + own_stagger();
}

void Stepper::ask_for_votes() {
  s_.role = State::kAsks;
  s_.tries_until = now_ + set_.lease / 2;
  s_.peers.assign(static_cast<std::size_t>(set_.hosts), {});
  ask_all();
  if (set_.needed == 1) take_lead();
}

// Asks every host whose answer is needed. A host that has voted is not asked again: that would bind its vote
// for longer, and the election may fail.
void Stepper::ask_all() {
  const Ask::Kind kind = s_.role == State::kProbes ? Ask::kProbe
                         : s_.role == State::kAsks ? Ask::kVote
                                                   : Ask::kRenew;
  for (int host = 0; host < set_.hosts; ++host) {
    if (host == set_.self || (kind == Ask::kVote && peer(host).granted)) continue;
    Ask ask{.kind = kind, .term = s_.term, .sent_at = now_};
    if (kind == Ask::kRenew) {
      ask.serves = s_.serves;
      add_record(host, &ask);
    }
    say(host, std::move(ask));
  }
  s_.asks_at = now_ + (kind == Ask::kRenew ? set_.renew : set_.retry);
}

// A host that served since then had a majority's votes, and at least one of the present voters has its
// record. A term tells which host led.
bool Stepper::succeeds_itself() const {
  const auto later = [&](const Stamp& stamp) {
    return stamp.term > s_.served && stamp.term % set_.hosts != set_.self;
  };
  const auto voted = [](const Peer& peer) { return peer.granted.has_value(); };
  return s_.served > 0 && 1 + std::ranges::count_if(s_.peers, voted) + set_.needed > set_.hosts &&
         !later(s_.record.stamp) &&
         std::ranges::none_of(s_.peers, [&](const Peer& peer) { return voted(peer) && later(peer.stamp); });
}

void Stepper::take_lead() {
  if (!succeeds_itself()) s_.served = 0;
  s_.role = State::kLeads;
  s_.newest = std::max(s_.newest, s_.term);
  s_.bound_to = set_.self;
  s_.bound_term = s_.term;
  s_.bound_until = 0;
  s_.record.stamp = {s_.term, 1};
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
  const Stamp& stamp = s_.record.stamp;
  if (s_.written == stamp.version) return;
  const auto have = std::ranges::count_if(s_.peers, [&](const Peer& peer) { return peer.stamp == stamp; });
  if (have < set_.needed - 1) return;
  s_.written = stamp.version;
  if (s_.serves) return say(-1, Written{s_.written});
  s_.serves = true;
  s_.leader = {s_.term, set_.self};
  const bool again = std::exchange(s_.served, s_.term) != 0;
  say(-1, Lead{s_.term, s_.record.text, again});
  ask_all();
}

void Stepper::advance() {
  if (s_.retired) return;
  if (s_.role == State::kFollows) {
    if (now_ >= s_.stands_at) stand();
  } else if (s_.role == State::kLeads) {
    if (now_ >= s_.asks_at) ask_all();
  } else if (now_ >= s_.tries_until) {
    if (s_.role == State::kProbes && set_.needed == 1) return ask_for_votes();
    rest(s_.role == State::kAsks ? set_.lease / 2 : 0);
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
    case State::kFollows:
      return s.stands_at;
    case State::kProbes:
    case State::kAsks:
      return std::min(s.asks_at, s.tries_until);
    case State::kLeads:
      return std::min(s.asks_at, s.bound_until);
  }
  return kNever;
}

Millis leads_until(const State& state) { return state.role == State::kLeads ? state.bound_until : 0; }

Leader known_leader(const State& state, Millis now) {
  return now < state.bound_until ? state.leader : Leader{};
}

}  // namespace dtrun::rendezvous::succession
