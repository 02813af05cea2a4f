// The coordinator of one run as a pure state machine: its members, the generation that they form, when that
// starts, breaks and ends. step() takes each event, and the time; it returns the messages to send. Streams,
// timers and threads belong to server/.
//
// A run gathers members, then runs one generation after another. A generation breaks when a worker fails, a
// member is lost or a new one joins. Its members are then told to stop. Once all have stopped or are gone,
// either the job ends or the next generation starts. JobEnd is sent once, and again only to members that
// missed it.
//
// A seat waits kReconnectGrace for a member whose connection broke (seats.h). A coordinator that was
// restarted knows no generation. When members come that are part of one, it adopts that: all seats exist, and
// each is away until its member is back or the heartbeat timeout is over. docs/reconnect.md tells the cases.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/core/messages.h"
#include "rendezvous/core/observe/goodput.h"
#include "rendezvous/core/observe/history.h"
#include "rendezvous/core/observe/no_progress.h"
#include "rendezvous/core/observe/straggler.h"
#include "rendezvous/core/run/admission.h"
#include "rendezvous/core/run/deadlines.h"
#include "rendezvous/core/run/failures.h"
#include "rendezvous/core/run/members.h"
#include "rendezvous/core/run/news.h"
#include "rendezvous/core/run/restart_policy.h"
#include "rendezvous/core/run/seats.h"

namespace dtrun::rendezvous {

// How long a seat waits for a member whose connection broke: an agent that lives tries again at once, so this
// is a round trip or two. If the agent died, its peers lose this time.
inline constexpr Millis kReconnectGrace = 300;
// The longest such wait while the generation is being stopped.
inline constexpr Millis kReturnWhileStopping = 3000;
// Before a silent member is given up, the coordinator listens for this long: it may itself have been stopped,
// or starved, while the member's messages were waiting to be read.
inline constexpr Millis kHearOut = 200;
// A member that was given up and is back tells its workers to pause, and has the microbatch in hand to wait
// for.
inline constexpr Millis kReadyAgain = 10000;
// At most so many nodes are named to the members as missing, the newest.
inline constexpr std::size_t kMissingTold = 4;
// Limit of JobEnd::followers: every node receives all of them.
inline constexpr std::size_t kMaxFollowers = 64;

enum class Phase {
  kGathering,  // fewer members than a generation needs, or last call
  kRunning,
  kStopping,  // the generation is broken; its members were told to stop
  kOver,
};

// Why a generation broke.
enum class Cause { kNone, kFailure, kLoss, kNewcomer, kWorkersBack, kStoppedByItself };

// State of one generation: a new generation begins with a new one.
struct Generation {
  std::shared_ptr<Membership> membership = {};  // null before the first generation
  bool adopted = false;  // its nodes are known only as far as their members have come back
  Millis started_at = 0;
  std::int64_t step = 0;  // the furthest that its workers reported
  GenerationTime time = {};
  Seats seats = {};
  bool newcomer = false;  // since its start a node joined, or has more workers, and may be taken in
  Failures failures = {};
  Cause cause = Cause::kNone;
  bool lost_member = false;
  bool after_step = false;      // its members may end the step in hand before they stop
  bool look = false;            // it hangs: members look where their workers stand before they stop them
  std::string why = {};         // it broke, or the job ended: the reason of the next generation
  std::string came_back = {};   // the member that did, as a sentence, so that the next can begin
  bool worker_failure = false;  // that reason is a worker failure
  NoProgress no_progress = {};
  std::string waits = {};  // who waited for whom as the first worker failed; empty: nobody did for long
  std::string stopped_by_hand = {};  // the host of a member that a person stopped with Ctrl-C
};

// An earlier coordinator's knowledge of the run's newest generation.
struct Inherited {
  std::int64_t generation = 0;          // 0: nothing
  std::vector<std::string> hosts = {};  // of its nodes, in rank order; empty ones are not known
  std::string leader = {};              // host that had that coordinator; empty: none of the run's nodes
};

struct State {
  Phase phase = Phase::kGathering;
  std::optional<Settings> settings;  // none before the first Join
  Members members;
  std::set<MemberId> ever_met;  // these may ask for the result after the end
  bool told_other_command = false;
  // The agent that hosts this coordinator has gone, and another one comes in its place with the next
  // coordinator. No generation begins any more: the next coordinator takes over a generation if it knows that
  // the host had a seat in it.
  bool host_gone = false;
  bool outlives_host = false;  // another host takes the coordinator over when this one's goes

  std::string short_of_workers;  // gathering: WaitStatus::short_of_workers

  std::int64_t generation = 0;   // number of the newest
  std::int64_t newest_seen = 0;  // highest number that a member came with; the next generation's is higher
  Generation current;            // the newest, also after its end
  Inherited inherited;
  RestartPolicy policy;
  int membership_changes = 0;
  StragglerWatch stragglers;             // of the newest generation
  std::optional<Verdict> verdict;        // the newest that was told, of any generation
  Goodput spent;                         // before the newest generation, and since it broke
  Millis charged_until = 0;              // the time that goodput knows
  std::shared_ptr<const JobEnd> result;  // once over
  Millis over_at = 0;                    // once over

  RecentNews news;
  History history;
  std::pair<Phase, std::int64_t> recorded = {};  // the last that history knows of the run itself
  Deadlines deadlines;
  std::optional<Millis> announced;  // when the waiting members were last told how many have joined
};

// Carries out what `event` and the time mean for the state. Total: any event in any state, late or malformed
// ones included, is answered or dropped. `now` must not go back.
std::vector<Action> step(State& state, const Event& event, Millis now);

// From the first member's coming until `now`, or the run's end. Between generations the state tells what the
// time was spent on.
Goodput goodput_of(const State& state, Millis now);

// When to call step with a Tick, unless something happens before; kNever: nothing is due.
Millis next_deadline(const State& state);

}  // namespace dtrun::rendezvous
