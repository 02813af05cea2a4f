// Runs this node's workers: carries out the actions of agent/core/supervisor/decide.h that concern their
// processes, and turns their messages, ends and hangs into events. Owns what that needs: the processes, the
// watch for hangs, the GPUs' driver. Lives on the agent's loop.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/children.h"
#include "agent/core/job_spec.h"
#include "agent/core/supervisor/decide.h"
#include "agent/count_exchange.h"
#include "agent/health/gpu_guard.h"
#include "agent/health/hang_guard.h"
#include "agent/health/oom.h"
#include "agent/health/worker_usage.h"
#include "agent/output/console.h"
#include "agent/output/event_log.h"
#include "agent/output/progress_view.h"
#include "agent/process/scratch.h"
#include "agent/process/watchdog.h"
#include "agent/process/worker_planner.h"
#include "agent/system/loop.h"
#include "agent/trace_session.h"
#include "proto/control.pb.h"

namespace dtrun::agent {

class WorkerRunner {
 public:
  // The agent around it. All of it must outlive the runner.
  struct Agent {
    Loop& loop;
    Console& console;
    ProgressView& view;
    EventLog& log;
    Disk& logs;
    Scratch& scratch;
    const State& state;
  };
  struct Events {
    std::function<void(Event)> happened;
    // The job's first process is about to start; or, where another process wrote the output directory, a
    // worker trains.
    std::function<void()> begins;
    // A request to the store, of a worker or of this agent, with keys under `prefix`; reply() has the answer.
    std::function<void(int serial, const std::string& prefix, const control::KvRequest& request)> kv;
  };

  // `tag` is the watchdog's. To be made before the job starts any other process.
  WorkerRunner(const JobSpec& spec, std::string tag, Watchdog& watchdog, Agent agent, Events events);
  WorkerRunner(const WorkerRunner&) = delete;

  // The job begins: takes down how the GPUs are.
  void begin() { gpu_guard_.begin(); }

  void act(const action::StartWorkers& a);
  void act(const action::WarmUp& a);
  void act(const action::AwaitGpus& a);
  void act(const action::AskGpu& a);
  void act(const action::PlaceWorker& a);
  void act(const action::PauseWorkers& a);
  void act(const action::EndWorker& a);
  void act(const action::SignalWorkers& a);
  void act(const action::LookAtWorkers& a);
  void act(const action::KillHung& a);
  void act(const action::AbortWorkers& a);

  // To be called on SIGCHLD.
  void reap() { children_.reap(); }
  // A signal that is the workers' alone.
  void pass_on(int number) { children_.signal_groups(number); }
  // Stops or resumes reading the workers' output.
  void pause_output(bool paused);
  // The answer to a request. The worker may have ended since.
  void reply(int serial, control::KvReply reply);
  // By local rank; 0 for a worker that does not run.
  std::vector<pid_t> pids() const { return children_.pids(spec_.nproc); }
  // By local rank, for a heartbeat.
  std::vector<WorkerReport> reports();

  // This node's part of a trace.
  rendezvous::v1::TracePart trace(const rendezvous::v1::TraceOrder& order);

  // The job is over: watches no more.
  void rest();
  // True if any process is left that was given time to end.
  bool left_behind() const { return children_.left_behind(); }
  void kill_left_behind(const std::string& why) { children_.kill_left_behind(why); }
  // Ends all processes of the job.
  void clear();

 private:
  void spawn(const std::vector<action::Spawn>& workers);
  void start(int serial, WorkerPlan plan);
  void said(WorkerProcess& worker, int serial, const control::FromWorker& message);
  void greet(WorkerProcess& worker, int serial, const control::Hello& hello);
  std::string unit_file(int first) const;
  void begin_history();
  void progressed(WorkerProcess& worker, const Progress& progress);
  void look_at_heartbeat_files();
  bool let_end(const WorkerProcess& worker, bool well);
  void ended(int serial, WorkerOutcome outcome, bool never_ran);
  void note_cause(WorkerOutcome* outcome);
  void tell_people(const std::string& text);
  HangGuard::View hang_view();
  std::string store_of(std::int64_t generation) const;  // prefix of the keys

  const JobSpec& spec_;
  const BuiltinTrainer* const trainer_;  // null for another program
  const Agent agent_;
  const Events events_;
  WorkerPlanner planner_;
  Children children_;
  bool congested_ = false;
  bool begun_ = false;
  bool killed_ = false;  // we sent SIGKILL to this generation's workers
  WorkerUsages usages_;
  OomWatch oom_ = OomWatch::of_this_process();
  Timer heartbeat_timer_{agent_.loop};
  std::optional<CountExchange> exchange_;  // the newest
  std::uint64_t next_request_ = 0;         // of all exchanges
  HangGuard hang_guard_;
  GpuGuard gpu_guard_;
  TraceSession trace_session_;
};

}  // namespace dtrun::agent
