// What the agent does next: a pure function of (state, event, time). It knows the rendezvous, this node's
// workers, signals and deadlines, and includes nothing but the standard library and exit codes;
// agent/driver.h turns the world into events and carries the actions out.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "agent/core/assignment.h"
#include "agent/core/outcome.h"

namespace dtrun::agent {

using Millis = std::int64_t;  // of a steady clock; only differences mean something

struct Settings {
  bool builtin = false;  // dtrun-worker: understands Stop orders, and SIGTERM as "checkpoint and end"
  int nproc = 1;
  int min_nodes = 1;
  int max_nodes = 1;
  int max_restarts = 0;
  bool hosting = false;  // the coordinator lives in this process
  std::string endpoint;  // "host:port", for people
  std::string host;      // this node's name
  Millis join_timeout = 600000;
  Millis shutdown_timeout = 30000;
  // How long a lost coordinator is waited for. Unset: 30 s for one that an agent hosts, which went down with
  // its node; at least join_timeout for a `dtrun store`, which will be started again.
  std::optional<Millis> read_timeout;
  std::vector<std::pair<int, int>> no_restart_exit_codes = {{2, 2}, {64, 78}};  // of other programs
};

namespace event {

struct Opened {};     // a connection stands: whoever is at its other end may be told who joins
struct Connected {};  // it is a coordinator
struct Disconnected {
  std::string why;
  bool permanent = false;
};
struct Welcome {
  std::string address;  // what peers will be told
  Millis heartbeat_interval = 1000;
  bool resumed = false;   // the coordinator goes on with the generation that we run
  bool separate = false;  // it is a `dtrun store`, not part of an agent
};
struct Waiting {
  int joined = 0, min_nodes = 0, max_nodes = 0;
  bool spare = false;
  Millis restart_in = 0;  // of the back-off before a restart
  std::string reason;     // of that restart
};
struct Assigned {
  Assignment assignment;
};
struct StopOrder {
  std::int64_t generation = 0;
  std::string reason;
};
struct Ended {
  JobEnd job;
};
struct Rejected {
  int exit_code = 0;
  bool job_over = false;
  std::string message;
};
// A worker is gone, its output is read to the end. The outcome names exit, pid, error and stderr; the rest
// (rank, host, collateral, retryable) is decided here.
struct WorkerExited {
  std::int64_t generation = 0;
  WorkerOutcome outcome;
  bool never_ran = false;  // the program could not be executed
};
struct WorkerBroken {  // its collective broke; it waits to be stopped
  std::int64_t generation = 0;
  int local_rank = 0;
  std::string error;
};
struct WorkerCompleted {
  Completion completion;
};
struct Signal {
  int number = 0;
};
struct Progressed {    // the built-in trainer, as far as `dtrun status` is to show it
  bool first = false;  // of this generation, or its first step
};
struct MembersLeft {};  // the coordinator hosted here has no member but this one
struct Tick {};

}  // namespace event

using Event = std::variant<event::Opened, event::Connected, event::Disconnected, event::Welcome,
                           event::Waiting, event::Assigned, event::StopOrder, event::Ended, event::Rejected,
                           event::WorkerExited, event::WorkerBroken, event::WorkerCompleted,
                           event::Progressed, event::Signal, event::MembersLeft, event::Tick>;

namespace action {

struct StartWorkers {
  Assignment assignment;
};
struct SignalWorkers {  // the process group of every worker that still runs
  int number = 0;
};
struct AbortWorkers {  // the control protocol's Stop{ABORT}
  std::string reason;
};
struct SendJoin {
  Assignment running;  // or what ran last; generation 0: nothing yet
  Millis age = 0;      // of that generation
};
struct SendHeartbeat {
  std::int64_t generation = 0;
};
struct SendFailure {
  std::int64_t generation = 0;
  WorkerOutcome outcome;
};
struct SendStopped {
  std::int64_t generation = 0;
  std::vector<WorkerOutcome> outcomes;
};
struct SendFinished {
  std::int64_t generation = 0;
};
struct SendLeave {
  std::int64_t generation = 0;
  int signal = 0;
};
struct AwaitMembers {};  // answer MembersLeft once no other member is connected to the server hosted here
struct DropOutput {};    // whoever reads our output has stopped: wait for it no longer
struct Print {           // one or more lines for people
  std::string text;
};
struct Report {  // the job failed: tell people and programs
  JobEnd job;
};
struct End {
  int exit_code = 0;
};

}  // namespace action

using Action = std::variant<action::StartWorkers, action::SignalWorkers, action::AbortWorkers,
                            action::SendJoin, action::SendHeartbeat, action::SendFailure, action::SendStopped,
                            action::SendFinished, action::SendLeave, action::AwaitMembers, action::DropOutput,
                            action::Print, action::Report, action::End>;

// Where this node stands with the coordinator.
struct Connection {
  bool connected = false;
  bool ever_connected = false;
  Millis lost_at = 0;
  std::string why_lost;
  bool separate = false;          // the coordinator is a `dtrun store`
  std::optional<Millis> tell_at;  // say that it is lost, unless it is back by then
  bool told = false;
  std::optional<Millis> heartbeat_at;
  Millis heartbeat_interval = 1000;
  Millis heartbeat_sent_at = 0;
  std::string address;
};

// This node's workers of the current generation.
struct Group {
  Assignment assignment;  // generation 0: none yet
  Millis started_at = 0;
  std::vector<std::optional<WorkerOutcome>> outcomes;  // by local rank; empty while the worker runs
  bool failure_sent = false;
  std::optional<WorkerOutcome> reported;  // what was sent, to be sent again after a reconnect
  bool closed = true;  // Finished or Stopped was sent: nothing more to say of this generation
  bool stopping = false;
  std::string why_stopping;         // unless a signal told us to
  std::optional<Millis> notice_at;  // say so, unless the workers have ended by then
  bool aborted = false;             // told by the control protocol to end at once
  std::set<int> signals;            // that we sent to them
  std::optional<Millis> kill_at;
  std::optional<Millis> broken_at;  // when to stop waiting for the cause of a broken collective
  WorkerOutcome broken;
};

struct State {
  Settings settings;
  Millis started_at = 0;
  Connection link;
  Group group;
  std::optional<Assignment> next;  // starts as soon as no worker of the old generation runs
  std::optional<event::Waiting> waiting;
  std::optional<Millis> waiting_since;
  std::optional<Millis> notice_at;
  std::string told_restart;  // reason of a restart that was told with its back-off
  std::optional<Completion> completion;
  // Reasons to end, the first that applies wins.
  int told_signal = 0;
  Millis told_at = 0;
  std::optional<int> give_up;  // exit code
  std::string give_up_reason;
  std::optional<JobEnd> job_end;
  std::optional<Millis> members_notice_at, members_deadline;
  bool ended = false;
};

State initial_state(Settings settings, Millis now);

// Advances the state by one event; the actions are to be carried out in order.
std::vector<Action> decide(State& state, const Event& event, Millis now);

// When the next Tick is due, if any.
std::optional<Millis> next_deadline(const State& state);

}  // namespace dtrun::agent
