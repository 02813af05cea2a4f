// One step of the agent's decisions (decide.h), from the inside. connection.cc: the coordinator is there, or
// is waited for; workers.cc: this node's workers start, fail and are stopped; recovery.cc: they outlive a
// generation; end.cc: the next step once none runs, and the end.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/supervisor/decide.h"

namespace dtrun::agent {

class Step {
 public:
  Step(State& state, Millis now) : s(state), now_(now) {}

  std::vector<Action> take() { return std::move(out_); }
  // Workers whose process was never started, and which a signal has ended.
  void end_unstarted();

  // The coordinator (connection.cc).
  void on(const event::Opened& e);
  void on(const event::Connected& e);
  void on(const event::Disconnected& e);
  void on(const event::JoinAck& e);
  void on(const event::WaitStatus& e);
  void on(const event::News& e);
  void on(const event::Progressed& e);

  // The workers (workers.cc).
  void on(const event::Assigned& e);
  void on(const event::StopOrder& e);
  void on(const event::WorkerExited& e);
  void on(const event::GpuFound& e);
  void on(const event::GpusFree& e);
  void on(const event::HangFound& e);
  void on(const event::WorkerCompleted& e);
  void on(const event::Signal& e);

  // Workers that outlive generations (recovery.cc).
  void on(const event::WorkerReady& e);
  void on(const event::Trained& e);

  // The end (end.cc).
  void on(const event::Ended& e);
  void on(const event::Rejected& e);
  void on(const event::MembersLeft& e);

  void on(const event::Tick& e);  // decide.cc

 private:
  // connection.cc
  void beat();
  void send_heartbeat();
  void say_again();
  void tell_lost();
  Millis next_notice();
  void show_wait_status(bool again = false);
  void check_link();

  // workers.cc
  void announce_leave();
  void signal_workers(int number, std::optional<int> only = {});
  void begin_grace();
  void abort_workers(const std::string& reason);
  void stop_workers(const std::string& reason);
  void halt_workers(const std::string& reason, bool after_step = false);
  void tell_if_slow(const std::string& reason);
  void tell_why_stopping();
  void kill_workers();
  void again_told(int number);
  void failed(Worker& worker, bool never_ran);
  void ask_gpu(Worker& worker);
  void report_failure(const WorkerOutcome& outcome);
  void cause_unknown();
  void look(const std::string& reason);
  void end_hang();
  void broken(const Worker& worker, const std::string& error);
  void start_next();
  std::vector<action::Spawn> spawn_missing();
  action::Spawn spawn_of(const Worker& worker) const;
  bool hold(const std::vector<action::Spawn>& spawn);
  Worker* worker_of(int serial);
  void announce(const Assignment& to);

  // recovery.cc
  bool hands_over() const;
  void pause_workers(const std::string& reason, bool after_step = false);
  void end_paused();
  void choose_parts(int count);
  void place(Worker& worker);
  void warm_up();
  bool warm_up_failed(const Worker& worker);
  void tell_ready();

  // end.cc
  int pass_on(int exit_code);
  void give_up(int exit_code, const std::string& message);
  void settle();
  void leave(int signal, int exit_code);
  void report_before(int signal, int exit_code);
  void close_generation();
  void send_end();
  void conclude();
  void tell_success(int restarts, int membership_changes);
  void check_members();
  void report(JobEnd job);
  void end(int exit_code);

  std::int64_t generation() const { return s.group.generation(); }
  bool workers_run() const { return s.running() > 0; }
  bool due(const std::optional<Millis>& at) const { return at && *at <= now_; }

  template <typename A>
  void emit(A action) {
    out_.push_back(std::move(action));
  }
  void print(std::string text) { emit(action::Print{.text = std::move(text)}); }

  State& s;
  const Millis now_;
  std::vector<Action> out_;
  std::vector<event::WorkerExited> unstarted_;
};

}  // namespace dtrun::agent
