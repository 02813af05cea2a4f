// Decides the agent's next actions: a pure function of (state, event, time). It knows the rendezvous, this
// node's workers, signals and deadlines, and includes nothing but the standard library and other cores;
// agent/driver.h turns the world into events and carries the actions out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "agent/core/supervisor/state.h"
#include "agent/core/vocabulary.h"
#include "proto/core/millis.h"

namespace dtrun::agent {

namespace event {

struct Opened {          // a connection is open: Join may be sent
  bool hosting = false;  // the coordinator lives in this process
};
struct Connected {            // the other end is a coordinator
  std::string endpoint = {};  // for people, where it was not known before; else empty
};
struct Disconnected {
  std::string why;
  bool permanent = false;
  int exit_code = kExitUnavailable;  // of a permanent one
  bool silent = false;               // a connection ended since nothing came over it
  bool refused = false;              // none was made: its host answers that nobody listens there
};
using rendezvous::JoinAck;
using rendezvous::News;
using rendezvous::Verdict;
using rendezvous::WaitStatus;
struct Assigned {
  Assignment assignment;
};
struct StopOrder {
  std::int64_t generation = 0;
  std::string reason;
  bool look = false;        // at where the workers stand, before they are stopped
  bool after_step = false;  // there is time to end the step in hand
};
struct Ended {
  JobEnd job;
};
struct Rejected {
  int exit_code = 0;
  bool job_over = false;
  std::string message;
};
// A worker has ended and its output is read to the end. The outcome has exit, pid, error and stderr; decide()
// fills in the rest (rank, host, collateral, retryable).
struct WorkerExited {
  int serial = 0;
  WorkerOutcome outcome;
  bool never_ran = false;  // the program could not be executed
};
struct GpuFound {       // the answer to AskGpu
  int serial = 0;       // of the worker
  std::string trouble;  // lines for people; empty: the GPU has no part in the failure, or nothing is known
};
struct GpusFree {    // the answer to AwaitGpus
  std::string note;  // for people, if the wait was for nothing
};
struct WorkerOutlives {  // a program's worker has said that it outlives generations, and was answered that it
                         // may
  int serial = 0;
  int unit = 1;  // WorkersState's
};
struct WorkerReady {  // it waits for a place in a generation
  int serial = 0;
  std::optional<std::int64_t> step;  // steps done by the state in its memory
  std::string error;                 // how its collective broke; empty: told to pause, or has just loaded
  bool torn = false;                 // it had a state, and has begun to change it
};
// Workers of this node hang, and all of them were looked at. Outcomes as they would be if they were killed
// now.
struct HangFound {
  std::int64_t generation = 0;
  std::vector<WorkerOutcome> hung;  // not empty
};
struct WorkerCompleted {
  Completion completion;
};
struct Progressed {  // of the built-in trainer, as local rank 0 reports it
  Progress progress;
  std::int64_t generation = 0;  // of that worker
};
struct Signal {
  int number = 0;
};
struct MembersLeft {};  // the coordinator hosted here has no member but this one
struct Tick {};

}  // namespace event

using Event =
    std::variant<event::Opened, event::Connected, event::Disconnected, event::JoinAck, event::WaitStatus,
                 event::News, event::Verdict, event::Assigned, event::StopOrder, event::Ended,
                 event::Rejected, event::WorkerExited, event::GpuFound, event::GpusFree,
                 event::WorkerOutlives, event::WorkerReady, event::HangFound, event::WorkerCompleted,
                 event::Progressed, event::Signal, event::MembersLeft, event::Tick>;

namespace action {

// A process to be started: a worker's, or its replacement.
struct Spawn {
  int serial = 0;
  int local_rank = 0;
  int rank = 0;  // the worker's, or the one that it is likely to get
};
// A generation begins. Workers that wait for it get their place by PlaceWorker.
struct StartWorkers {
  Assignment assignment;
  std::vector<Spawn> spawn;
};
// Processes that a generation could not start with: outside of any, so that they have loaded when the next
// one begins, or in one, as the GPUs were not free.
struct WarmUp {
  std::vector<Spawn> spawn;
};
struct AwaitGpus {};  // answer GpusFree once workers that ended hold no GPU's memory any more
struct AskGpu {       // answer GpuFound: what its GPU has to do with a failure
  int serial = 0;
  int local_rank = 0;
};
struct PlaceWorker {
  int serial = 0;
  int rank = 0;
  int index = 0;  // among this node's workers of the generation
};
struct Recovered {                         // the first step after a generation that ended too early is done
  std::int64_t first_step = 0;             // before it: the step in hand was done again from there
  int kept = 0;                            // workers of this node that went on with their state
  int replaced = 0;                        // workers of this node that were started
  Millis took = 0;                         // from the news that the generation ends
  bool from_in_memory_checkpoint = false;  // as in Progress
};
struct EndWorker {  // a program's, that waits for a place in vain
  int serial = 0;
  bool last = false;  // it has the job's last state, and may save it, as this rank of so many:
  int rank = 0, world_size = 0;
};
struct PauseWorkers {  // those at work
  bool after_step = false;
  bool leaves = false;  // this node leaves the run
  std::string reason;
};
struct SignalWorkers {  // the process group of every worker that still runs
  int number = 0;
  std::optional<int> only = {};  // this worker's, by its serial
};
// Find out where the workers stand: one of another node hangs. Facts that are late for `limit` are left out.
struct LookAtWorkers {
  Millis limit = 0;
};
struct KillHung {};    // the workers of the last HangFound
struct AbortWorkers {  // the control protocol's Stop{ABORT}
  std::string reason;
};
struct SendJoin {
  Assignment running;    // what runs, or ran last; generation 0: nothing yet
  Millis age = 0;        // of that generation
  bool hosting = false;  // the coordinator lives in this process
};
struct SendHeartbeat {
  std::int64_t generation = 0;
  std::optional<Progress> progress = {};
  bool outlives = false;  // this node's workers, generations
};
struct SendFailure {
  std::int64_t generation = 0;
  WorkerOutcome outcome;
};
struct SendStopped {
  std::int64_t generation = 0;
  std::vector<WorkerOutcome> outcomes;
  std::optional<int> workers = {};  // that wait for the next generation
  bool parted = false;              // as GenerationState has it
};
struct SendReady {
  std::int64_t generation = 0;
};
struct SendFinished {
  std::int64_t generation = 0;
};
struct SendLeave {
  std::int64_t generation = 0;
  int signal = 0;
  bool soon = false;      // not yet: its workers are still ending
  bool replaced = false;  // another process comes in its place
};
struct AwaitMembers {      // answer MembersLeft once no other member is connected to the server hosted here
  bool is_member = false;  // this agent
};
struct DropOutput {};  // our output has no reader any more: do not wait for one
struct Print {         // one or more lines for people
  std::string text;
  bool error = false;    // the reason of this node's end
  bool of_node = false;  // of this node alone: a launcher of several names it
  bool again = false;    // said before but for its numbers: a terminal shows it in place (standing_notice)
};
struct TellNews {  // about the run's nodes
  rendezvous::News news;
  std::string text;  // for people
};
struct TellVerdict {  // on the workers of the run, all of them
  rendezvous::Verdict verdict;
};
struct Report {  // the job failed: tell people and programs
  JobEnd job;
};
struct End {
  int exit_code = 0;
  std::optional<JobEnd> unreported;  // the failure, if no Report has written it for programs
  std::optional<JobEnd> run;         // how the run ended, if that is known here
};

}  // namespace action

using Action =
    std::variant<action::StartWorkers, action::WarmUp, action::AwaitGpus, action::AskGpu, action::PlaceWorker,
                 action::Recovered, action::EndWorker, action::PauseWorkers, action::SignalWorkers,
                 action::LookAtWorkers, action::KillHung, action::AbortWorkers, action::SendJoin,
                 action::SendHeartbeat, action::SendFailure, action::SendStopped, action::SendReady,
                 action::SendFinished, action::SendLeave, action::AwaitMembers, action::DropOutput,
                 action::Print, action::TellNews, action::TellVerdict, action::Report, action::End>;

State initial_state(Settings settings, Millis now);

// Advances the state by one event; the actions are to be carried out in order.
std::vector<Action> decide(State& state, const Event& event, Millis now);

// When the next Tick is due, if any.
std::optional<Millis> next_deadline(const State& state);

// False while workers are being stopped, or soon will be: they have limited time to end, so it does not
// matter if one hangs.
bool hangs_matter(const State& state);
// A worker that waits for its peers gives heartbeats nevertheless, or has no peers on another node: one that
// is silent alone is at fault.
bool silence_tells(const State& state);

// The fate of the processes that a worker leaves behind which has just ended, `well` if with 0.
struct LeftBehindFate {
  std::optional<Millis> until;  // they may end by themselves; none: they are killed at once
  bool told = true;             // people hear of them
};
LeftBehindFate fate_of_left_behind(const State& state, bool well, Millis now);

}  // namespace dtrun::agent
