// Carries the decisions of agent/core/decide.h out: turns what happens (signals, workers, the coordinator,
// time) into events, asks what to do, and does it. One thread; owns everything of the agent that is not pure.
#pragma once

#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/decide.h"
#include "agent/core/job_spec.h"
#include "agent/health/hang_guard.h"
#include "agent/health/oom.h"
#include "agent/job_registry.h"
#include "agent/link.h"
#include "agent/output/console.h"
#include "agent/output/event_log.h"
#include "agent/output/progress_view.h"
#include "agent/process/guardian.h"
#include "agent/process/master_port.h"
#include "agent/process/worker_planner.h"
#include "agent/process/worker_process.h"
#include "agent/system/loop.h"
#include "agent/system/signals.h"
#include "agent/wire.h"

namespace dtrun::agent {

class Driver {
 public:
  // `token` is the guardian's.
  Driver(const JobSpec& spec, std::string token, Guardian& guardian, Signals& signals);

  // Until the job has ended here; the exit code of the contract.
  int run();

 private:
  Status prepare();
  void drain_events();
  void arm_timer();
  void finish();
  void flush_console();

  // Sources of events.
  void from_client(rendezvous::ClientEvent event);
  void from_signal(int number);
  void told_to_end(int number);
  void from_worker(WorkerProcess& worker, int serial, const control::FromWorker& message);
  void note_progress(const control::Progress& progress);
  void reap_children();
  void worker_exited(const WorkerProcess& worker);

  // Actions.
  void act(const action::StartWorkers& a);
  void act(const action::SignalWorkers& a);
  void act(const action::AbortWorkers& a);
  void act(const action::SendJoin& a);
  void act(const action::SendHeartbeat& a);
  void act(const action::SendFailure& a);
  void act(const action::SendStopped& a);
  void act(const action::SendFinished& a);
  void act(const action::SendLeave& a);
  void act(const action::AwaitMembers& a);
  void act(const action::DropOutput& a);
  void act(const action::Print& a);
  void act(const action::Report& a);
  void act(const action::End& a);

  void start_worker(WorkerPlan plan);
  std::string write_report_file(const JobEnd& job);
  JobEnd unreported_end(int exit_code) const;
  control::FromAgent start_message() const;
  HangGuard::View hang_view();
  void note_cause(WorkerOutcome* outcome);
  std::vector<pid_t> worker_pids() const;
  void sweep(const std::string& token);
  void sweep_strangers();
  std::vector<pid_t> known_children() const;
  Status hold_master_port();

  const JobSpec& spec_;
  const std::string token_;
  const BuiltinTrainer* const trainer_;  // null for another program
  Guardian& guardian_;
  int guardian_restarts_ = 0;
  Signals& signals_;
  Loop loop_;
  Console console_;
  ProgressView view_;
  std::optional<control::Progress> progress_;  // of this generation, as local rank 0 said last
  EventLog log_;
  std::optional<JobEntry> entry_;
  Identity identity_;
  WorkerPlanner planner_;
  Descriptor master_port_;  // keeps the port free for rank 0
  const bool outsiders_;    // this process had children before the job began

  State state_;
  std::deque<Event> events_;
  std::optional<Loop::TimerId> timer_;
  std::optional<int> exit_code_;
  bool reported_ = false;                                  // report.json is written
  std::map<int, std::unique_ptr<WorkerProcess>> workers_;  // by serial: a reply that comes late finds nobody
  int next_serial_ = 0;
  bool congested_ = false;
  OomWatch oom_ = OomWatch::of_this_process();
  HangGuard hang_guard_;
  std::unique_ptr<Link> link_;  // goes first: its events come here
};

}  // namespace dtrun::agent
