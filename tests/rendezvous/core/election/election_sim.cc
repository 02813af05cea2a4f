#include "tests/rendezvous/core/election/election_sim.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <queue>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace dtrun::rendezvous::election {
namespace {

constexpr Millis kAfterwards = 5000;  // without faults, among a majority
constexpr Millis kSettled = 3000;     // the part of kAfterwards after which somebody leads all the time
constexpr Millis kLatest = 900;       // of a late message

// A leader's order to members, given once a majority has it in the record.
struct Order {
  Term term = 0;
  std::int64_t generation = 0;
  bool end = false;
};

struct Message {  // between hosts; from and to a life of theirs
  int from = 0, to = 0, life = 0;
  std::variant<VoteRequest, VoteReply> body;
};
struct ToMember {
  int from = 0, member = 0;
  Order order;
};
struct FromMember {  // refuses a lower term
  int to = 0;
  Term highest = 0;
};
struct Timer {  // a host's
  int host = 0, life = 0;
  std::int64_t number = 0;
};
struct Fault {};
struct Up {  // a host is started, or runs again
  int host = 0, life = 0;
};
struct Work {  // the leader forms a generation, or ends the job
  int host = 0, life = 0;
  Term term = 0;
};
struct Healed {};
struct Look {};

using What = std::variant<Message, ToMember, FromMember, Timer, Fault, Up, Work, Healed, Look>;

struct Due {
  Millis at;
  std::int64_t number;  // among equal times the first sent comes first
  What what;
  bool operator<(const Due& other) const { return std::tie(at, number) > std::tie(other.at, other.number); }
};

struct Host {
  State state;
  int life = 0;
  bool up = false;
  bool paused = false;
  std::vector<What> waiting;  // while it stands still
  double rate = 1;
  Millis offset = 0;
  std::int64_t timer = 0;
  // As the leader's driver has it.
  bool told_to_lead = false;
  std::int64_t generation = 0;
  bool end = false;
  std::map<std::int64_t, Order> unsaid;  // by version

  Millis clock(Millis now) const { return offset + static_cast<Millis>(rate * static_cast<double>(now)); }
  Millis true_time(Millis local) const {
    return static_cast<Millis>(static_cast<double>(local - offset) / rate);
  }
};

std::string text_of(std::int64_t generation, bool end) {
  return std::to_string(generation) + (end ? " over" : "");
}

std::int64_t generation_of(const std::string& text) { return text.empty() ? 0 : std::stoll(text); }
bool is_end(const std::string& text) { return text.ends_with("over"); }

std::string both(const std::string& one, const std::string& other) {
  if (one.empty() || other.empty()) return one + other;
  return text_of(std::max(generation_of(one), generation_of(other)), is_end(one) || is_end(other));
}

class Simulation {
 public:
  explicit Simulation(const SimSettings& settings) : set_(settings), random_(settings.seed) {}

  SimResult run() {
    start();
    while (result_.broken.empty() && !queue_.empty() && queue_.top().at <= set_.trouble + kAfterwards) {
      Due due = std::move(const_cast<Due&>(queue_.top()));
      queue_.pop();
      count_leaderless(due.at);
      now_ = due.at;
      ++result_.events;
      take(std::move(due.what));
      check_leaders();
    }
    if (result_.broken.empty() && leaderless_since_ >= 0 && !set_.alone)
      fail("nobody leads at the end, although a majority could");
    return std::move(result_);
  }

 private:
  Millis between(Millis least, Millis most) {
    return std::uniform_int_distribution<Millis>(least, most)(random_);
  }
  bool chance(double share) { return std::uniform_real_distribution<>(0, 1)(random_) < share; }
  int any_host() { return static_cast<int>(between(0, set_.hosts - 1)); }
  void at(Millis when, What what) { queue_.push({when, next_++, std::move(what)}); }
  void fail(const std::string& what) {
    if (result_.broken.empty()) result_.broken = what + " (at " + std::to_string(now_) + " ms)";
  }

  void start() {
    hosts_.resize(static_cast<std::size_t>(set_.hosts));
    highest_.assign(static_cast<std::size_t>(set_.members), 0);
    cut_.assign(hosts_.size(), std::vector<bool>(hosts_.size() + highest_.size(), false));
    loss_ = chance(0.5) ? 0 : 0.2;
    late_ = chance(0.5) ? 0 : 0.1;
    for (int i = 0; i < set_.hosts; ++i) {
      host(i).rate = 1 + 0.02 * (std::uniform_real_distribution<>(-1, 1)(random_));
      host(i).offset = between(1000, 1'000'000);
      at(chance(0.5) ? 0 : between(0, 1500), Up{i, 0});
    }
    for (int i = 0; i < set_.faults; ++i) at(between(0, set_.trouble), Fault{});
    at(set_.trouble, Healed{});
    at(set_.trouble + kSettled, Look{});
  }

  Host& host(int i) { return hosts_[static_cast<std::size_t>(i)]; }
  bool acts(const Host& one) const {
    return one.up && one.state.serves && one.clock(now_) < leads_until(one.state);
  }

  void take(What what) {
    if (std::holds_alternative<Fault>(what)) return fault();
    if (std::holds_alternative<Healed>(what)) return heal();
    if (std::holds_alternative<Look>(what)) return;
    if (auto* to = std::get_if<ToMember>(&what)) return obey(*to);
    if (auto* up = std::get_if<Up>(&what)) return come_up(*up);
    const int id = host_of(what);
    Host& one = host(id);
    if (!one.up) return;
    if (one.paused) return one.waiting.push_back(std::move(what));
    carry_in(id, what);
  }

  static int host_of(const What& what) {
    if (const auto* message = std::get_if<Message>(&what)) return message->to;
    if (const auto* refusal = std::get_if<FromMember>(&what)) return refusal->to;
    if (const auto* timer = std::get_if<Timer>(&what)) return timer->host;
    return std::get<Work>(what).host;
  }

  void carry_in(int id, const What& what) {
    Host& one = host(id);
    if (const auto* message = std::get_if<Message>(&what)) {
      // A message to a process that is gone is lost with the connection.
      if (message->life != one.life) return;
      Event event{.from = message->from, .body = Tick{}};
      std::visit([&](const auto& body) { event.body = body; }, message->body);
      drive(id, event);
    } else if (const auto* refusal = std::get_if<FromMember>(&what)) {
      drive(id, {.body = ObservedTerm{refusal->highest}});
    } else if (const auto* timer = std::get_if<Timer>(&what)) {
      if (timer->life == one.life && timer->number == one.timer) drive(id, {.body = Tick{}});
    } else if (const auto* work = std::get_if<Work>(&what)) {
      if (work->life == one.life) this->work(id, work->term);
    }
  }

  void drive(int id, const Event& event) {
    Host& one = host(id);
    const bool led = one.state.role == State::kLeader;
    for (Action& action : step(one.state, event, one.clock(now_))) carry_out(id, std::move(action));
    if (led && one.state.role != State::kLeader) ++result_.lapsed;
    const Millis next = next_deadline(one.state);
    if (next != kNever) at(std::max(now_, one.true_time(next) + 1), Timer{id, one.life, ++one.timer});
  }

  void carry_out(int id, Action action) {
    Host& one = host(id);
    if (auto* ask = std::get_if<VoteRequest>(&action.body)) return send(id, action.to, std::move(*ask));
    if (auto* answer = std::get_if<VoteReply>(&action.body)) return send(id, action.to, std::move(*answer));
    if (const auto* lead = std::get_if<BecomeLeader>(&action.body)) return begin_to_lead(id, *lead);
    if (std::holds_alternative<Forget>(action.body)) return;
    if (std::holds_alternative<StepDown>(action.body)) {
      one.told_to_lead = false;
      one.unsaid.clear();
      return;
    }
    const auto& written = std::get<Written>(action.body);
    newest_ = std::max(newest_, RecordVersion{one.state.term, written.version});
    ++result_.written;
    while (!one.unsaid.empty() && one.unsaid.begin()->first <= written.version) {
      tell(id, one.unsaid.begin()->second);
      one.unsaid.erase(one.unsaid.begin());
    }
  }

  void begin_to_lead(int id, const BecomeLeader& lead) {
    Host& one = host(id);
    ++result_.leads;
    one.told_to_lead = true;
    one.generation = generation_of(lead.record);
    one.end = is_end(lead.record);
    newest_ = std::max(newest_, one.state.record.record_version);
    if (set_.keeps_record && !set_.alone) {
      if (one.generation < generation_) fail("a leader does not know the newest generation");
      if (end_ && !one.end) fail("a leader does not know that the job is over");
      if (lead.term <= newest_term_) fail("a later leader has a lower term");
    }
    newest_term_ = lead.term;
    result_.highest = std::max(result_.highest, lead.term);
    if (lead.again) ++result_.again;
    if (lead.again && set_.keeps_record && last_leader_ != id)
      fail("a leader keeps what it had, although another one led since");
    last_leader_ = id;
    at(now_ + between(1, 400), Work{id, one.life, lead.term});
  }

  void work(int id, Term term) {
    Host& one = host(id);
    if (!one.told_to_lead || one.state.term != term || !acts(one)) return;
    if (one.end && one.unsaid.empty()) {
      tell(id, {term, one.generation, true});
    } else if (!one.end) {
      one.end = now_ > set_.trouble / 2 && chance(0.2);
      one.generation += one.end ? 0 : 1;
      one.unsaid[one.state.record.record_version.version + 1] = {term, one.generation, one.end};
      drive(id, {.body = Write{term, text_of(one.generation, one.end)}});
    }
    at(now_ + between(1, 700), Work{id, one.life, term});
  }

  void tell(int id, const Order& order) {
    if (!acts(host(id))) return;
    if (!set_.alone && set_.keeps_record) {
      const auto [known, added] = formed_by_.try_emplace(order.generation, order.term);
      if (!added && known->second != order.term && !order.end)
        fail("two leaders formed generation " + std::to_string(order.generation));
      if (end_ && !order.end) fail("the job goes on although its end was told");
    }
    generation_ = std::max(generation_, order.generation);
    end_ = end_ || order.end;
    result_.ended = end_;
    for (int member = 0; member < set_.members; ++member)
      if (passes(id, set_.hosts + member)) at(now_ + delay(), ToMember{id, member, order});
  }

  void obey(const ToMember& to) {
    if (set_.lies && to.member == 0 && now_ < set_.trouble) return lie(to.from);
    Term& highest = highest_[static_cast<std::size_t>(to.member)];
    if (to.order.term >= highest) {
      highest = to.order.term;
      return;
    }
    ++result_.refused;
    at(now_ + delay(), FromMember{to.from, highest});
  }

  void lie(int to) {
    constexpr Term kMost = std::numeric_limits<Term>::max();
    ++result_.lies;
    const Term lies[] = {-kMost,    -1,   newest_term_ + 1, newest_term_ + 1000, newest_term_ + kFurthest,
                         kMost - 1, kMost};
    at(now_ + delay(), FromMember{to, lies[between(0, std::ssize(lies) - 1)]});
  }

  // ---- the network

  bool passes(int from, int to) {
    return !cut_[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)] && !chance(loss_);
  }
  Millis delay() { return chance(late_) ? between(1, kLatest) : between(0, 4); }

  template <typename Body>
  void send(int from, int to, Body body) {
    if (passes(from, to)) at(now_ + delay(), Message{from, to, host(to).life, std::move(body)});
  }

  // ---- what goes wrong

  void fault() {
    if (now_ >= set_.trouble) return;
    const auto kind = between(0, 9);
    if (kind <= 2) return crash(busy_host());
    if (kind <= 5) return pause(busy_host());
    ++result_.cuts;
    if (kind == 6) {  // everything whole again
      for (auto& row : cut_) row.assign(row.size(), false);
    } else if (kind == 7) {  // a partition
      std::vector<bool> side;
      for (std::size_t i = 0; i < cut_[0].size(); ++i) side.push_back(chance(0.5));
      for (std::size_t a = 0; a < cut_.size(); ++a)
        for (std::size_t b = 0; b < side.size(); ++b) cut_[a][b] = side[a] != side[b];
    } else {  // its messages are lost, or those to it
      const auto one = static_cast<std::size_t>(busy_host());
      for (std::size_t other = 0; other < cut_.size(); ++other) {
        if (chance(0.3)) continue;
        (kind == 8 ? cut_[one][other] : cut_[other][one]) = other != one;
      }
    }
  }

  // Often the leader.
  int busy_host() {
    for (int i = 0; i < set_.hosts; ++i)
      if (acts(host(i)) && chance(0.6)) return i;
    return any_host();
  }

  // One that has just got a version, and dies before the leader counts that, is counted all the same.
  bool may_forget(int id) const {
    RecordVersion newest = newest_;
    for (const Host& one : hosts_)
      if (one.up) newest = std::max(newest, one.state.record.record_version);
    int without = 0;
    for (int i = 0; i < set_.hosts; ++i) {
      const Host& one = hosts_[static_cast<std::size_t>(i)];
      without += i == id || !one.up || one.state.record.record_version < newest;
    }
    return without <= set_.hosts - (set_.hosts / 2 + 1);
  }

  void crash(int id) {
    Host& one = host(id);
    if (!one.up || (set_.keeps_record && !may_forget(id))) return;
    ++result_.crashes;
    one.up = one.paused = one.told_to_lead = false;
    one.waiting.clear();
    one.unsaid.clear();
    ++one.life;
    at(now_ + (chance(0.5) ? between(0, 50) : between(50, 3000)), Up{id, one.life});
  }

  void pause(int id) {
    Host& one = host(id);
    if (!one.up || one.paused) return;
    ++result_.pauses;
    one.paused = true;
    at(now_ + between(1, 2500), Up{id, one.life});
  }

  void come_up(const Up& up) {
    Host& one = host(up.host);
    if (up.life != one.life) return;
    if (one.paused) {
      one.paused = false;
      for (const What& what : std::exchange(one.waiting, {}))
        if (one.up) carry_in(up.host, what);
      return drive(up.host, {.body = Tick{}});
    }
    if (one.up) return;
    one.up = true;
    Settings settings = settings_for(set_.hosts, up.host, set_.alone, both);
    if (set_.tamper) set_.tamper(settings);
    one.state = begin(settings, one.clock(now_));
    drive(up.host, {.body = Tick{}});
  }

  // From now on a majority is whole; the links of the others may be anything.
  void heal() {
    loss_ = late_ = 0;
    std::vector<int> order;
    for (int i = 0; i < set_.hosts; ++i) order.push_back(i);
    std::ranges::shuffle(order, random_);
    const auto majority = static_cast<std::size_t>(set_.alone ? set_.hosts : set_.hosts / 2 + 1);
    for (std::size_t a = 0; a < order.size(); ++a) {
      const auto one = static_cast<std::size_t>(order[a]);
      for (std::size_t b = 0; b < order.size(); ++b)
        cut_[one][static_cast<std::size_t>(order[b])] = (a >= majority || b >= majority) && chance(0.5);
      if (a < majority) {
        Host& well = host(order[a]);
        if (!well.up) come_up({order[a], well.life});
        if (well.paused) come_up({order[a], well.life});
      }
    }
  }

  // ---- what must hold

  void check_leaders() {
    const auto leading = std::ranges::count_if(hosts_, [&](const Host& one) { return acts(one); });
    if (leading > 1 && set_.alone) ++result_.alone_beside;
    if (leading > 1 && !set_.alone) fail("two hosts lead at the same time");
    if (leading == 0 && leaderless_since_ < 0) leaderless_since_ = now_;
    if (leading > 0) leaderless_since_ = -1;
  }

  void count_leaderless(Millis until) {
    if (leaderless_since_ < 0) return;
    if (until > set_.trouble) result_.until_lead = until - set_.trouble;
    if (until > set_.trouble + kSettled && !set_.alone)
      fail("nobody leads, although a majority could for " + std::to_string(kSettled) + " ms");
  }

  const SimSettings set_;
  std::mt19937_64 random_;
  std::priority_queue<Due> queue_;
  std::int64_t next_ = 0;
  Millis now_ = 0;
  std::vector<Host> hosts_;
  std::vector<Term> highest_;           // by member
  std::vector<std::vector<bool>> cut_;  // from a host, to a host or a member
  double loss_ = 0, late_ = 0;

  // The newest record that a majority had, and that members were told of.
  RecordVersion newest_;
  Term newest_term_ = 0;
  int last_leader_ = -1;
  std::int64_t generation_ = 0;
  bool end_ = false;
  std::map<std::int64_t, Term> formed_by_;
  Millis leaderless_since_ = 0;

  SimResult result_;
};

}  // namespace

SimResult simulate(const SimSettings& settings) { return Simulation(settings).run(); }

}  // namespace dtrun::rendezvous::election
