// Carries out the decisions of agent/core/supervisor/decide.h: turns signals, messages, workers' ends and
// time into events, asks decide(), and carries its actions out. One thread. It owns everything of the agent
// that is not pure, and decides nothing: only decide() changes the state.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/children.h"
#include "agent/core/job_spec.h"
#include "agent/core/supervisor/decide.h"
#include "agent/health/gpu_guard.h"
#include "agent/health/hang_guard.h"
#include "agent/health/oom.h"
#include "agent/job_registry.h"
#include "agent/launcher_line.h"
#include "agent/link.h"
#include "agent/output/event_log.h"
#include "agent/output/progress_view.h"
#include "agent/output/remote_console.h"
#include "agent/output/terminal_console.h"
#include "agent/process/master_port.h"
#include "agent/process/scratch.h"
#include "agent/process/watchdog.h"
#include "agent/process/worker_planner.h"
#include "agent/reporter.h"
#include "agent/system/loop.h"
#include "agent/system/signals.h"
#include "agent/wire.h"
#include "agent/worker_input.h"

namespace dtrun::agent {

class Driver {
 public:
  // `tag` is the watchdog's.
  Driver(const JobSpec& spec, std::string tag, Watchdog& watchdog, Signals& signals);

  // Until the job has ended here; the exit code of the contract.
  int run();

 private:
  Console& open_console();
  Status prepare();
  void give_up(const Status& status);
  void listen_to_launcher();
  void take_input(const std::string& text);
  void drain_events();
  void arm_timer();
  bool shows_waiting() const;
  void show_waiting();
  void finish();
  void close_link();
  void wait_for_left_behind();
  bool was_told_to_end() const;
  void flush_console();

  // Sources of events.
  void from_client(rendezvous::ClientEvent event);
  void from_signal(int number);
  void told_to_end(int number);
  void from_worker(WorkerProcess& worker, int serial, const control::FromWorker& message);

  // Actions.
  void act(const action::StartWorkers& a);
  void act(const action::WarmUp& a);
  void act(const action::AwaitGpus& a);
  void act(const action::AskGpu& a);
  void act(const action::PlaceWorker& a);
  void act(const action::Recovered& a);
  void act(const action::PauseWorkers& a);
  void act(const action::SignalWorkers& a);
  void act(const action::LookAtWorkers& a);
  void act(const action::KillHung& a);
  void act(const action::AbortWorkers& a);
  void act(const action::SendJoin& a);
  void act(const action::SendHeartbeat& a);
  void act(const action::SendFailure& a);
  void act(const action::SendStopped& a);
  void act(const action::SendReady& a);
  void act(const action::SendFinished& a);
  void act(const action::SendLeave& a);
  void act(const action::AwaitMembers& a);
  void act(const action::DropOutput& a);
  void act(const action::Print& a);
  void act(const action::TellNews& a);
  void act(const action::Report& a);
  void act(const action::End& a);

  void spawn(const std::vector<action::Spawn>& workers);
  void start_worker(int serial, WorkerPlan plan);
  bool let_end(const WorkerProcess& worker, bool well);
  void worker_ended(int serial, std::int64_t generation, WorkerOutcome outcome, bool never_ran);
  std::string gpu_of(int local_rank) const;
  void tell_people(const std::string& text);
  HangGuard::View hang_view();
  void note_cause(WorkerOutcome* outcome);
  void leave_word(const JobEnd& run);
  Status hold_master_port();

  const JobSpec& spec_;
  const BuiltinTrainer* const trainer_;  // null for another program
  Signals& signals_;
  Loop loop_;
  // One of the two: a launcher on another host has started us, or not.
  std::optional<RemoteConsole> remote_console_;
  std::optional<TerminalConsole> own_console_;
  Console& console_;
  ProgressView view_;
  EventLog log_;
  Reporter reporter_;
  std::optional<JobEntry> entry_;
  std::optional<WorkerInput> input_;
  std::optional<LauncherLine> launcher_;  // if one on another host has started us
  Identity identity_;
  Scratch scratch_;
  WorkerPlanner planner_;
  Descriptor master_port_;  // keeps the port free for rank 0
  Children children_;

  State state_;
  std::deque<Event> events_;
  std::optional<Loop::TimerId> timer_;
  std::optional<Loop::TimerId> waiting_timer_;
  bool waiting_shown_ = false;
  std::string failure_;  // the last reason told to people why the job failed, or cannot be run here
  std::optional<int> exit_code_;
  bool congested_ = false;
  bool started_ = false;  // a worker, ever
  bool killed_ = false;   // we sent SIGKILL to this generation's workers
  OomWatch oom_ = OomWatch::of_this_process();
  HangGuard hang_guard_;
  GpuGuard gpu_guard_;
  std::unique_ptr<Link> link_;  // destroyed first: its events come here
};

}  // namespace dtrun::agent
