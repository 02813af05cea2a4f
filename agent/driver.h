// Carries out the decisions of agent/core/supervisor/decide.h: turns signals, messages, workers' ends and
// time into events, asks decide(), and carries its actions out. One thread. It owns everything of the agent
// that is not pure, and decides nothing: only decide() changes the state.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "agent/core/job_spec.h"
#include "agent/core/supervisor/decide.h"
#include "agent/job_registry.h"
#include "agent/launcher_line.h"
#include "agent/link.h"
#include "agent/output/event_hook.h"
#include "agent/output/event_log.h"
#include "agent/output/progress_view.h"
#include "agent/output/remote_console.h"
#include "agent/output/terminal_console.h"
#include "agent/process/master_port.h"
#include "agent/process/scratch.h"
#include "agent/process/watchdog.h"
#include "agent/reporter.h"
#include "agent/system/disk.h"
#include "agent/system/loop.h"
#include "agent/system/signals.h"
#include "agent/wire.h"
#include "agent/worker_input.h"
#include "agent/worker_runner.h"

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
  void tell_page(const std::string& text);
  void give_up(const Status& status);
  void listen_to_launcher();
  void take_input(const std::string& text);
  void drain_events();
  void arm_timer();
  bool shows_waiting() const;
  void show_waiting();
  void finish();
  void listen_to_events();
  void tell_hooks_fault();
  void close_link();
  void wait_for_left_behind();
  bool was_told_to_end() const;
  void flush();
  void enter_in_registry();

  // Sources of events.
  void from_client(rendezvous::ClientEvent event);
  void answer(const rendezvous::v1::TraceOrder& order);
  void from_signal(int number);
  void told_to_end(int number);

  // Actions. Those that concern workers are theirs.
  template <typename A>
  void carry_out(const A& a) {
    if constexpr (requires { workers_.act(a); })
      workers_.act(a);
    else
      act(a);
  }
  void act(const action::Recovered& a);
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
  void act(const action::TellVerdict& a);
  void act(const action::Report& a);
  void act(const action::End& a);

  EndedJob ended(const JobEnd& run) const;
  Status hold_master_port();

  const JobSpec& spec_;
  Signals& signals_;
  Loop loop_;
  // For log files, events and reports; and for temporary files and the registry, which are elsewhere: a file
  // system that hangs holds up its own files alone.
  Disk logs_{loop_}, temporary_{loop_};
  // One of the two: a launcher on another host has started us, or not.
  std::optional<RemoteConsole> remote_console_;
  std::optional<TerminalConsole> own_console_;
  Console& console_;
  ProgressView view_;
  EventLog log_;
  std::optional<EventHook> hook_;
  Reporter reporter_;
  std::shared_ptr<JobEntry> entry_;  // used by temporary_ alone
  bool entry_ready_ = false;         // as the entry says
  std::optional<WorkerInput> input_;
  std::optional<LauncherLine> launcher_;  // if one on another host has started us
  Identity identity_;
  Scratch scratch_;
  Descriptor master_port_;  // keeps the port free for rank 0

  State state_;
  std::deque<Event> events_;
  WorkerRunner workers_;
  Timer timer_{loop_}, waiting_timer_{loop_};
  bool waiting_shown_ = false;
  std::string failure_;  // the last reason told to people why the job failed, or cannot be run here
  std::optional<int> exit_code_;
  std::unique_ptr<Link> link_;  // destroyed first: its events come here
};

}  // namespace dtrun::agent
