// The messages between agents and the coordinator as plain structs: both pure cores use them (state.h,
// agent/core/supervisor/decide.h). Their meaning is that of proto/rendezvous.proto; rendezvous/wire/convert.h
// is the only code that turns one into the other. A new fact is a line there, here and in the .proto file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "proto/core/contract.h"
#include "proto/core/exit_codes.h"
#include "proto/core/goodput.h"
#include "proto/core/millis.h"
#include "proto/core/operation.h"
#include "proto/core/training.h"

namespace dtrun::rendezvous {

using ConnectionId = std::uint64_t;  // one stream; a member that reconnects comes with another one
using MemberId = std::string;

// The state of a worker when its agent inspected it because the job hangs. The values are the wire's.
enum class Activity : int {
  kUnseen,
  kWaits,          // for something, perhaps a peer
  kWaitsForPeers,  // in a collective
  kElsewhere,      // for something that is no peer: time, a file, a person, a process of its own
  kComputes,
  kSilent,  // it stopped giving heartbeats, whatever it does
  kRaised,  // it failed with an error that it wrote down, and has not ended
};

// True if the state itself says that the worker is at fault.
constexpr bool is_at_fault(Activity activity) {
  return activity == Activity::kSilent || activity == Activity::kRaised;
}

// How one worker ended.
struct WorkerOutcome {
  int rank = 0;
  int local_rank = 0;
  int group_rank = 0;
  int pid = 0;  // not above 0: it never ran
  std::string host;
  int exit_code = 0;  // valid when signal is 0
  int signal = 0;
  bool collateral = false;               // stopped by its agent, or ended only because a peer did
  bool retryable = true;                 // false: the same failure would come back
  std::vector<std::string> stderr_tail;  // oldest first
  std::string error;                     // the worker's own message; may be empty
  double uptime_s = 0;
  std::string traceback;  // from its error file; may be empty
  double ended_at = 0;    // seconds since 1970 by its host's clock
  EndCause cause = EndCause::kUnknown;
  std::string where;  // the worker stood as the job hung, "all_reduce at train.py:88"; empty: not looked at
  Activity activity = Activity::kUnseen;
  std::string gpu = {};  // its GPU's part in that end, lines for people; empty: nothing is known
  double error_at = 0;   // as ended_at: it wrote its error file then; 0: it wrote none

  bool ok() const { return exit_code == 0 && signal == 0; }
  bool operator==(const WorkerOutcome&) const = default;
};

// Failures of a run, by cause.
struct FailureCounts {
  int exit = 0;  // of a worker, as are these four: its exit code
  int signal = 0;
  int out_of_memory = 0;
  int hung = 0;
  int node_lost = 0;  // with its workers, or its agent

  bool operator==(const FailureCounts&) const = default;
};

// Facts of earlier generations that tell a crash loop from bad luck (restart_policy.h). Members carry them
// for a coordinator that is restarted.
struct CrashHistory {
  int quick_restarts = 0;      // in a row, of generations that got nowhere
  std::int64_t best_step = 0;  // that any generation got to
  int alike = 0;               // failures in a row that are alike, before the job got anywhere; of them:
  int rank = 0;
  int exit_code = 0;
  int signal = 0;
  FailureCounts failures = {};  // of the run

  bool operator==(const CrashHistory&) const = default;
};

// ---- from agents and from the driver

struct Join {
  std::string run_id;
  MemberId member_id;
  std::string host;
  std::string address;  // never empty: the driver fills in the stream's peer address
  int nproc = 1;
  int node_rank = -1;  // -1: any
  int min_nodes = 1;
  int max_nodes = 1;
  int max_restarts = 0;
  int crash_loop_limit = 0;
  Millis last_call = 5000;
  Millis join_timeout = 600000;
  Millis heartbeat_timeout = 15000;  // keep_alive_interval * keep_alive_max_attempt
  std::string job;
  int master_port = 0;
  int group_rank = -1;  // the rank that it had in Event::generation; -1: none
  // The size of that generation, for a coordinator that was restarted; node_count 0: unknown.
  int node_count = 0;
  int first_rank = 0;
  int world_size = 0;
  int restart_count = 0;
  int membership_changes = 0;
  CrashHistory crash_history;
  Goodput goodput = {};                      // as its assignment said
  std::vector<std::string> seat_hosts = {};  // likewise: Assignment::hosts
  Millis age = 0;                            // of that generation
  bool hosts = false;                        // the coordinator runs inside this agent; the driver checks it
  std::vector<std::string> command = {};     // the words of a program; empty for the built-in trainer
  int workers = 0;                           // that are part of Event::generation
  bool in_memory_recovery = false;           // its workers load first and outlive generations: it sends Ready
  // The device of the built-in trainer's workers, all of which compute on the same kind: "cuda", "cpu", or
  // "cpu, " and the properties that determine the bits of its results, where they are known and must not
  // differ.
  std::string device = {};
  std::string gpu = {};        // the kind of its GPUs, the same for all; empty: none, or not known
  std::vector<int> gpus = {};  // as nvidia-smi counts, by local rank; empty: none, or not known
  std::string topology = {};   // where the node is in the network, from the outside in; empty: not known
  std::int64_t term = 0;       // the highest of a leader that the agent obeyed (election.h)
  int least_workers = 1;       // of the job, that the node has the memory for
  std::optional<int> preferred_rank = {};  // as its cluster counts the nodes; not claimed as node_rank is
  int protocol = kRendezvousProtocol;      // of the agent's build

  bool operator==(const Join&) const = default;
};
// The kernel's account of a worker, of any program, and of all its descendants, since it began.
struct WorkerUsage {
  double cpu = 0;                   // seconds, as is the next
  double cpu_wait = 0;              // its threads were ready to run, and had no CPU
  std::int64_t major_faults = 0;    // pages that had to be read from a disk
  std::int64_t read_bytes = 0;      // by system calls, from anywhere
  std::int64_t written_bytes = 0;   // likewise
  std::int64_t resident_bytes = 0;  // now
  double output_age = 0;            // seconds since it wrote a line last, or began
  std::string last_line = {};       // that it wrote, cut; empty: none

  bool operator==(const WorkerUsage&) const = default;
};
// A worker's GPU, as its driver says. What the driver does not tell is absent.
struct GpuUse {
  int number = 0;                                  // as nvidia-smi counts
  std::optional<double> utilization = {};          // 0..1: share of the time in which any kernel ran
  std::optional<std::uint64_t> memory_used = {};   // bytes, by all of its processes
  std::optional<std::uint64_t> memory_total = {};  // bytes
  std::optional<double> temperature = {};          // degrees Celsius
  std::optional<double> power = {};                // watts
  std::vector<std::string> throttled = {};         // what slows it down: "heat"

  bool operator==(const GpuUse&) const = default;
};
// A worker that has got nothing done of late (agent/core/hang.h).
struct Quiet {
  enum Why : int { kSilent, kIdle, kWaits };
  Why why = kSilent;
  double seconds = 0;
  bool overdue = false;    // people are to be told
  std::string where = {};  // it stands; empty: not looked at
  Activity activity = Activity::kUnseen;
  // kWaits: the operation that it waits in.
  int peer = -1;  // rank; -1: all others
  Operation::Kind operation = Operation::Kind::kMessage;
  std::int64_t step = 0;  // done before it
  int bucket = -1;        // -1: none

  bool operator==(const Quiet&) const = default;
};
// The newest facts of one worker.
struct WorkerReport {
  int rank = -1;                          // in the heartbeat's generation; -1: it has no part in that
  std::int64_t step = 0;                  // done, of a program that reports progress
  std::optional<StepTimes> times = {};    // none from a program that keeps none
  std::optional<WorkerUsage> usage = {};  // none while its agent has not looked yet
  std::optional<Quiet> quiet = {};        // none: it gets on
  std::optional<GpuUse> gpu = {};         // none: it has none, or its driver has not answered yet

  bool operator==(const WorkerReport&) const = default;
};
struct Heartbeat {
  std::vector<int> pids;                   // by local rank; 0: that worker does not run
  std::optional<Progress> progress = {};   // as one of its workers said last; none: they report none
  bool outlives = false;                   // its workers outlive generations
  std::vector<WorkerReport> workers = {};  // by local rank, as pids

  bool operator==(const Heartbeat&) const = default;
};
struct Failure {
  WorkerOutcome outcome;
};
struct Stopped {
  std::vector<WorkerOutcome> outcomes;  // of those that ended
  std::optional<int> workers = {};      // that wait for the next generation; none: all are started with it
  bool parted = false;                  // they left the generation since this coordinator was out of reach

  bool operator==(const Stopped&) const = default;
};
struct Ready {};
struct Finished {};
struct Leave {
  int signal = 0;
  bool soon = false;      // not yet: its workers are still ending
  bool replaced = false;  // another process comes in its place, with the coordinator if it hosts that
};
struct StreamBroken {
  std::string why;  // for people, may be empty
};
struct Tick {};

struct Event {
  ConnectionId from = 0;        // 0 for Tick
  std::int64_t generation = 0;  // the sender's newest
  std::variant<Join, Heartbeat, Failure, Stopped, Ready, Finished, Leave, StreamBroken, Tick> body;
};

// ---- to agents and to the driver

struct JoinAck {
  std::string address;  // the address that peers get
  Millis heartbeat_interval = 0;
  bool resumed = false;       // the member has its seat in the generation that it named
  bool separate = false;      // the coordinator is a `dtrun store`; the driver fills it in
  std::string instance = {};  // of the store; the driver fills it in

  bool operator==(const JoinAck&) const = default;
};
struct Rejected {
  enum Reason : int {
    kUnspecified,
    kOtherRun,
    kOtherJob,
    kOtherSettings,
    kNodeRankTaken,
    kJobOver,
    kOtherDevice,
    kNotPermitted,
    kOtherProtocol
  };
  Reason reason = kUnspecified;
  std::string message;
  std::string job;  // kOtherJob: the run's text

  bool operator==(const Rejected&) const = default;
};
// Something about the run's nodes that people should know.
struct News {
  enum Kind : int { kNote, kLeft, kLost, kRefused, kBack, kNoProgress, kProgress };
  // A node is missing.
  bool missing() const { return kind == kLeft || kind == kLost || kind == kRefused; }
  Kind kind = kNote;
  std::string host;  // that it is about
  std::string text;  // one sentence: "node1 left (told to by SIGINT)"
  Millis age = 0;    // since it happened

  bool operator==(const News&) const = default;
};
// For people and programs; a kind of a newer coordinator is a note.
inline const char* name_of(News::Kind kind) {
  static constexpr const char* kNames[] = {"note", "left",        "lost",    "refused",
                                           "back", "no_progress", "progress"};
  return kNames[kind >= News::kNote && kind <= News::kProgress ? kind : News::kNote];
}
struct WaitStatus {
  int joined = 0;
  int min_nodes = 0;
  int max_nodes = 0;
  bool run_goes_on = false;   // without this node, which waits for a place
  Millis restart_in = 0;      // of the back-off before a restart, 0: none
  std::string reason;         // of that restart
  std::vector<News> missing;  // nodes known to be gone, or refused, the newest last; without their texts
  Millis left = 0;            // until the wait for nodes ends; 0: others have to stop their workers first
  int away = 0;               // nodes of the generation that are out of touch and waited for
  bool outlives = false;      // workers of the run outlive generations: those of a node that joins load first
  // Why the workers that are ready cannot begin, one sentence; empty: they can. All nodes load theirs.
  std::string short_of_workers = {};

  bool operator==(const WaitStatus&) const = default;
};
struct Node {
  std::string host;
  std::string address;
  int nproc = 0;
  int first_rank = 0;
  MemberId member_id = {};

  bool operator==(const Node&) const = default;
};
// The facts on one generation that are the same for all its members.
struct GenerationFacts {
  std::int64_t generation = 0;
  int world_size = 0;
  int restart_count = 0;       // job-wide, worker failures only
  int membership_changes = 0;  // job-wide: nodes lost or taken in
  CrashHistory crash_history;  // when it started
  Goodput goodput = {};        // until then
  std::string master_address;
  int master_port = 0;
  std::string reason;  // why it was formed, one sentence

  bool operator==(const GenerationFacts&) const = default;
};
// One generation as the coordinator knows it.
struct Membership : GenerationFacts {
  std::vector<Node> nodes;  // in group-rank order
};
// One generation as a member receives it: with only the number of the other nodes, which keeps a start linear
// in that number.
struct Assignment : GenerationFacts {
  int group_rank = 0;
  int node_count = 1;
  Node node;  // the member's own
  // Of the generation, by group rank, for a coordinator that is restarted; empty: more than kMostNamed.
  std::vector<std::string> hosts = {};

  static constexpr std::size_t kMostNamed = 64;

  bool operator==(const Assignment&) const = default;
};
struct Assigned {
  int group_rank = 0;
  std::shared_ptr<const Membership> membership;
};
struct StopOrder {
  std::string reason;
  bool look = false;        // a worker hangs: see where yours stand, stop them a moment later
  bool after_step = false;  // there is time to end the step in hand

  bool operator==(const StopOrder&) const = default;
};
struct RankRange {
  int first = 0;
  int last = 0;

  bool operator==(const RankRange&) const = default;
};
// Ranks that stood at the same place.
struct LocationGroup {
  std::vector<RankRange> ranks;
  std::string where;
  int more = 0;  // ranks left out of `ranks`

  bool operator==(const LocationGroup&) const = default;
};
// The places where the workers of a job that hangs stood (hang.h).
struct Hang {
  std::vector<RankRange> ranks;       // that hang
  std::string what;                   // how it was noticed
  std::vector<LocationGroup> places;  // the fullest first
  int more = 0;                       // ranks left out of `places`
  std::vector<RankRange> suspects;    // likely at fault; none: no worker stands out
  std::string verdict;                // the same for people; empty if there is one rank

  bool operator==(const Hang&) const = default;
};
// The worker that slows the run, and why (observe/straggler.h).
struct Verdict {
  std::string text;   // one sentence; empty: none does any more
  int rank = -1;      // -1: of no worker
  std::string cause;  // a word for programs: docs/status.md
  double loss = 0;    // share of a step that it costs all, 0..1

  bool operator==(const Verdict&) const = default;
};
// The coordinator's last word on a job.
struct JobEnd {
  int exit_code = 0;
  std::string reason = {};                          // one sentence
  std::optional<WorkerOutcome> first_failure = {};  // none: no worker failed, or none stands out in a hang
  std::vector<WorkerOutcome> followers = {};        // by rank, the first kMaxFollowers
  int more_followers = 0;                           // left out of those
  int restart_count = 0;
  int membership_changes = 0;
  std::optional<Hang> hang = {};  // none unless the job hung
  Goodput goodput = {};
  std::optional<Verdict> verdict = {};  // the newest that lasted

  bool operator==(const JobEnd&) const = default;
};
struct Ended {
  std::shared_ptr<const JobEnd> result;
};
// The driver ends the stream once earlier messages are written, or at once if the peer is silent anyway.
struct Close {
  bool abort = false;
};

struct Action {
  ConnectionId to = 0;
  std::int64_t generation = 0;  // the coordinator's newest
  std::variant<JoinAck, Rejected, WaitStatus, News, Assigned, StopOrder, Verdict, Ended, Close> body;
};

}  // namespace dtrun::rendezvous
