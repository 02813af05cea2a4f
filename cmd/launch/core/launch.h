// Decides how a job comes up on its hosts and how it ends: a pure function of events. The driver
// (cmd/launch/launcher.h) turns remote shells, messages, signals and time into events, and carries the
// actions out.
//
//   waiting ─► dialling ─► planning ─► planned ─► looking ─► placed ─► trying ─► ready ─► running ─► ended
//                  │           │                     │                    │        │         │
//                  └───────────┴────── failed ◄──────┴────────────────────┴────────┘         └─► lost
//
// A lost host of a range is called again for as long as others run: dialling ─► planning ─► running, or lost.
//
// Nothing starts anywhere before every host is ready or has failed, and all failures are told at once. The
// first host begins first: until its agent has let go of the port, the others would find it busy.
//
// By the way to the first host, where the coordinator will be, each host gets the address under which its
// workers are known to the others. There the others try to reach it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cmd/check/core/probe_result.h"
#include "cmd/hosts/fan_out.h"
#include "cmd/hosts/ssh_failure.h"
#include "proto/core/millis.h"

namespace dtrun::cmd {

enum class Purpose {
  kRun,
  kCheck,
  kDetach,  // to start a job that goes on alone
  // To come back to one: hosts go from answering straight to running.
  kAttach,
  kStop,
  kLogs,
};

struct LaunchSettings {
  std::vector<std::string> hosts;   // names, for messages
  std::vector<std::string> logins;  // by host: what a user types to try the same, "ssh -p 2222 ada@a true"
  int min_nodes = 1;
  int max_nodes = 1;
  Purpose purpose = Purpose::kRun;
  std::string run_id = {};  // for messages about a detached job
  // Workers on any two hosts connect to each other, as the built-in trainer's do. If false, hosts that do not
  // reach each other are only reported: another program's needs are not known.
  bool all_meet = true;
  bool fails_over = true;  // else only the first host ever has the coordinator
  // The time for an agent to answer, from the dialling on: a shell may be slow, or wait for an answer to a
  // question. ssh's own limit for the connection is below, so ssh still tells why there is none.
  Millis answer_time = 30'000;
  Millis connect_time() const { return answer_time / 3; }
};

enum class HostPhase {
  kWaiting,   // not called yet, or to be called again
  kDialling,  // its remote shell runs, nothing has answered
  kPlanning,  // an agent has answered and got the job
  kPlanned,
  kLooking,  // it tries to reach the first host
  kPlaced,   // it does, and so has an address for the others
  kTrying,   // it tries to reach the others
  kReady,
  kRunning,
  kEnded,
  kFailed,  // it will not take part
  kLost,    // it took part, and the line to it broke, or its agent found no coordinator
};

// A connection that is missing between two hosts.
struct Gap {
  int to;
  std::string why;  // "10.0.0.5: refused"
};

struct HostState {
  HostPhase phase = HostPhase::kWaiting;
  bool with_files = false;  // dtrun has to be brought there
  Millis since = 0;         // when the phase began
  std::vector<std::string> addresses = {};
  int port = 0;
  std::string address = {};     // of the first host, as this one reaches it
  std::string from = {};        // its own, the same as its workers'
  std::vector<int> tried = {};  // the others that it was asked to reach
  std::vector<Gap> gaps = {};   // those that it does not
  std::optional<int> node_rank = {};
  std::string heard = {};  // the first line of the shell there, from before an agent answered: it logged in
  bool quiet_is_told = false;
  bool again = false;                   // it was lost, and is called again
  std::optional<Millis> again_at = {};  // of kLost: when
  int brief_lives = 0;                  // of its agents, in a row
  bool over = false;                    // its agent knows that the run is over
  int exit_code = 0;                    // of kEnded and kFailed
  std::string why = {};                 // of kFailed and kLost
};

struct LaunchState {
  LaunchSettings settings;
  std::vector<HostState> hosts;
  FanOut fan_out;
  std::optional<int> first;            // the host that hosts the coordinator
  std::vector<int> may_lead;           // the first host and its successors; empty: it has none
  bool begun = false;                  // the first host was told to begin, the others at least when it has
  bool too_few = false;                // hosts were lost, and the others told to stop
  bool over = false;                   // the run is, as an agent knows
  std::optional<Millis> late_at = {};  // when agents that do not know it are told to stop
  int signals = 0;                     // number of signals that the user sent
  int signal = 0;                      // the first of them
  bool finished = false;
};

namespace launch_event {
struct Begin {};
struct Answered {
  int host;
  bool same_build;
};
struct Planned {
  int host;
  std::vector<std::string> addresses;
  int port;
};
struct Refused {
  int host;
  int exit_code;
  std::string why;
};
struct Seen {
  int host;
  std::vector<ProbeResult> results;  // in the order of AskToLook
};
// The shell there printed its first line, and no agent has answered yet.
struct Heard {
  int host;
  std::string line;
};
// Its remote shell has ended without a last word.
struct Gone {
  int host;
  SshFailure failure;
};
// The agent there begins, and holds no port any more. The last event of a detached job that its launch sees.
struct Begun {
  int host;
};
// The coordinator has told the agent there that the run is over.
struct Over {
  int host;
};
struct Ended {
  int host;
  int exit_code;
};
// Nothing came from these for kQuiet, though each should have answered. Told once.
struct Quiet {
  std::vector<int> hosts;
};
struct Told {
  int signal;
};
struct Tick {};
}  // namespace launch_event

using LaunchEvent =
    std::variant<launch_event::Begin, launch_event::Answered, launch_event::Planned, launch_event::Refused,
                 launch_event::Seen, launch_event::Heard, launch_event::Gone, launch_event::Quiet,
                 launch_event::Begun, launch_event::Over, launch_event::Ended, launch_event::Told,
                 launch_event::Tick>;

namespace launch_action {
struct Dial {
  int host;
  bool with_files;
};
struct SendJob {
  int host;
};
struct At {
  int host;
  std::vector<std::string> addresses;
};
// Asks the host which of these addresses it reaches.
struct AskToLook {
  int host;
  std::vector<At> at;
};
struct TellBegin {
  int host;
  int first;
  std::string address;
  std::optional<int> node_rank;
  std::vector<At> may_lead;  // each with the address by which it is reached
};
struct PassSignal {
  int host;
  int signal;
};
struct HangUp {
  int host;
};
struct Say {
  std::string text;
  bool error;
};
// All hosts are ready or have failed, and the user only asked for that.
struct TellCheck {
  int ready;  // number of ready hosts
};
// A detached job is about to begin: its hosts are noted down so that later commands find it.
struct Remember {};
// It runs, on one host at least.
struct TellDetached {};
struct Finish {
  int exit_code;
};
}  // namespace launch_action

using LaunchAction = std::variant<launch_action::Dial, launch_action::SendJob, launch_action::AskToLook,
                                  launch_action::TellBegin, launch_action::PassSignal, launch_action::HangUp,
                                  launch_action::Say, launch_action::TellCheck, launch_action::Remember,
                                  launch_action::TellDetached, launch_action::Finish>;

// The hosts that are in one of these phases, in their order.
std::vector<int> hosts_in(const LaunchState& state, std::initializer_list<HostPhase> phases);

LaunchState initial_launch(const LaunchSettings& settings);

std::vector<LaunchAction> decide(LaunchState& state, const LaunchEvent& event, Millis now);

// When a Tick is due.
std::optional<Millis> next_deadline(const LaunchState& state);

// Each host tries to reach at most this many others: all of up to 64 hosts, else those behind it in a ring.
inline constexpr std::size_t kMostTried = 63;

// A host that is silent for this long is reported.
inline constexpr Millis kQuiet = 8'000;
// The limit in place of the answer_time if dtrun is brought there first, and for an agent's answers to
// requests.
inline constexpr Millis kPatience = 600'000;
// From the loss of a host, or a call that failed, to the next call.
inline constexpr Millis kCallAgain = 2'000;
// Twice as long, up to 64 s, each time that its agent lived for less than this.
inline constexpr Millis kBriefLife = 30'000;
// An agent that has not heard by then that the run is over is out of touch with it.
inline constexpr Millis kHeardOfEnd = 30'000;

}  // namespace dtrun::cmd
