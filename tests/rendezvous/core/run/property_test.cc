// Random histories, plausible and absurd, against the invariants. A failure prints the seed and the shortest
// history that still shows it; DTRUN_SEED=N runs that seed alone.
#include <doctest/doctest.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/rendezvous/core/run/invariants.h"
#include "tests/rendezvous/core/run/text.h"

namespace dtrun::rendezvous::property_test {
namespace {

constexpr int kAgents = 6;
constexpr int kEvents = 120;

struct Moment {
  Millis at;
  Event event;
};
using History = std::vector<Moment>;

// Invents what happens next, looking at the state so that messages make sense more often than not.
class Chance {
 public:
  explicit Chance(std::uint64_t seed) : random_(seed) {
    run_.min_nodes = 1 + below(3);
    run_.max_nodes = run_.min_nodes + below(3);
    run_.max_restarts = below(4);
    run_.last_call = below(3) * 500;
    run_.join_timeout = 5000 + below(20000);
    run_.heartbeat_timeout = 1000 + below(20000);
    run_.in_memory_recovery = below(2) == 0;
    run_.least_workers = below(3) == 0 ? 1 + below(6) : 1;
  }

  Moment next(const State& state, Millis now) {
    const Millis due = next_deadline(state);
    if (due != kNever && below(8) == 0) return {.at = due, .event = {.body = Tick{}}};
    const Millis at = now + (below(4) == 0 ? below(3000) : below(20));
    const ConnectionId from = 1 + static_cast<ConnectionId>(below(2 * kAgents));
    return {.at = at, .event = {.from = from, .generation = generation(state), .body = body(state, from)}};
  }

 private:
  int below(int limit) { return static_cast<int>(random_() % static_cast<std::uint64_t>(limit)); }

  // Any number of the type; often at its ends, or about 2^40, the first generation that is not believed.
  std::int64_t absurd() {
    constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
    switch (below(4)) {
      case 0:
        return (std::int64_t{1} << 40) - 2 + below(4);
      case 1:
        return kLargest - below(3);
      case 2:
        return std::numeric_limits<std::int64_t>::min() + below(3);
      default:
        return static_cast<std::int64_t>(random_());
    }
  }

  std::int64_t generation(const State& state) {
    if (below(200) == 0) return absurd();
    return below(10) == 0 ? below(12) : state.generation;
  }

  Heartbeat heartbeat() {
    Heartbeat heartbeat;
    heartbeat.progress = Progress{.step = below(100) == 0 ? absurd() : below(40)};
    if (below(2) == 0) heartbeat.progress->first_step = below(100) == 0 ? absurd() : below(40);
    if (below(2) == 0) heartbeat.progress->times = {.loading = below(9) - 1.0, .training = below(99) - 1.0};
    return heartbeat;
  }

  decltype(Event::body) body(const State& state, ConnectionId from) {
    if (!state.members.contains(from)) return join(from);
    switch (below(17)) {
      case 0:
        return join(from);
      case 16:
        return Ready{};
      case 1:
      case 2:
        return Failure{outcome(state)};
      case 3:
      case 4:
      case 5:
        return stopped(state);
      case 6:
      case 7:
      case 8:
        return Finished{};
      case 9:
        return Leave{std::array{0, SIGINT, SIGTERM}[below(3)], below(4) == 0};
      case 10:
        return StreamBroken{};
      default:
        return heartbeat();
    }
  }

  Join join(ConnectionId from) {
    Join join = run_;
    join.member_id = "m" + std::to_string(from % kAgents);  // two connections can claim one id
    join.host = "host" + std::to_string(from % 4);
    join.address = "10.0.0." + std::to_string(from);
    join.nproc = 1 + below(3);
    if (below(4) == 0) join.node_rank = below(run_.max_nodes + 1);
    if (below(4) == 0) join.group_rank = below(6);
    if (below(3) == 0) {
      join.group_rank = below(3);
      join.node_count = below(5);
      join.world_size = join.node_count + below(3);
      join.restart_count = below(4);
      join.goodput = {.training = below(100) - 10.0, .down = below(9) - 1.0, .best_step = below(50) - 1};
      join.crash_history = {below(5) - 1, below(50) - 1, below(5) - 1, below(3), below(2), 0};
      join.age = below(20) == 0 ? absurd() : below(60000) - 1;
    }
    join.hosts = below(4) == 0;
    if (below(40) == 0) join.in_memory_recovery = !join.in_memory_recovery;
    join.workers = below(50) == 0 ? static_cast<int>(absurd()) : below(4);
    if (below(30) == 0) join.run_id = "other";
    if (below(30) == 0) join.max_restarts += 1;
    if (below(40) == 0) join.nproc = -below(3);
    if (below(40) == 0) join.member_id = "";
    return join;
  }

  WorkerOutcome outcome(const State& state) {
    WorkerOutcome outcome;
    outcome.rank = state.current.membership == nullptr ? 0 : below(state.current.membership->world_size);
    outcome.host = "h";
    static constexpr int kCodes[] = {0, 1, 3, 75, 76, 78};
    outcome.exit_code = kCodes[below(6)];
    if (below(4) == 0) outcome.signal = 9;
    outcome.collateral = below(2) == 0;
    outcome.retryable = below(6) != 0;
    return outcome;
  }

  Stopped stopped(const State& state) {
    Stopped stopped;
    while (below(2) == 0) stopped.outcomes.push_back(outcome(state));
    if (below(2) == 0) stopped.workers = below(50) == 0 ? static_cast<int>(absurd()) : below(4);
    return stopped;
  }

  std::mt19937_64 random_;
  Join run_;
};

// Every other run outlives the host of its coordinator.
State beginning(std::uint64_t seed) {
  State state;
  state.outlives_host = seed % 2 == 1;
  return state;
}

// The first invariant that a history breaks, or "".
std::string replay(const History& history, State state) {
  Invariants invariants;
  for (const Moment& moment : history) {
    const auto actions = step(state, moment.event, moment.at);
    std::string broken = invariants.check(state, moment.event, actions, moment.at);
    if (!broken.empty()) return broken;
  }
  return "";
}

History invent(std::uint64_t seed) {
  Chance chance(seed);
  State state = beginning(seed);
  History history;
  Millis now = 0;
  for (int i = 0; i < kEvents; ++i) {
    history.push_back(chance.next(state, now));
    now = history.back().at;
    step(state, history.back().event, now);
  }
  return history;
}

// Leaves out all events that are not needed for the failure.
History shortest(History history, const State& first) {
  for (bool shrunk = true; shrunk;) {
    shrunk = false;
    for (std::size_t i = history.size(); i-- > 0;) {
      History shorter = history;
      shorter.erase(shorter.begin() + static_cast<std::ptrdiff_t>(i));
      if (replay(shorter, first).empty()) continue;
      history = std::move(shorter);
      shrunk = true;
    }
  }
  return history;
}

std::string text_of(const History& history, State state) {
  std::string text;
  for (const Moment& moment : history) {
    text += std::to_string(moment.at) + " #" + std::to_string(moment.event.from) + " " +
            text_of(moment.event) + "\n";
    for (const Action& action : step(state, moment.event, moment.at))
      text += "    #" + std::to_string(action.to) + ": " + text_of(action) + "\n";
  }
  return text;
}

void try_seed(std::uint64_t seed) {
  const State first = beginning(seed);
  const History history = invent(seed);
  const std::string broken = replay(history, first);
  if (broken.empty()) return;
  FAIL("seed " << seed << ": " << broken << "\n" << text_of(shortest(history, first), first));
}

// Lets only time pass and everybody stop or finish: the run must come to its end.
void check_that_it_ends(std::uint64_t seed) {
  State state = beginning(seed);
  Millis now = 0;
  for (const Moment& moment : invent(seed)) step(state, moment.event, now = moment.at);
  for (int i = 0; i < 1000 && state.phase != Phase::kOver && state.settings; ++i) {
    std::vector<ConnectionId> seated;
    for (const auto& [id, member] : state.members)
      if (member.seat && state.current.seats[*member.seat].open()) seated.push_back(id);
    for (ConnectionId id : seated) step(state, {id, state.generation, Finished{}}, now);
    if (next_deadline(state) == kNever) break;
    now = next_deadline(state);
    step(state, {.body = Tick{}}, now);
  }
  CHECK_MESSAGE((state.phase == Phase::kOver || !state.settings), "seed " << seed << " never ends");
}

}  // namespace

TEST_CASE("no history of events breaks an invariant") {
  if (const char* seed = std::getenv("DTRUN_SEED")) return try_seed(std::strtoull(seed, nullptr, 10));
  for (std::uint64_t seed = 0; seed < 2500; ++seed) try_seed(seed);
}

TEST_CASE("whatever happened, the run ends once its members only finish and time passes") {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) check_that_it_ends(seed);
}

}  // namespace dtrun::rendezvous::property_test
