// This node's part in the current generation: its workers begin it, fail, hang, are stopped or paused, and it
// is closed. recovery.cc: workers that outlive it.
#pragma once

#include <string>

#include "agent/core/supervisor/connection.h"
#include "agent/core/supervisor/workers.h"

namespace dtrun::agent {

class Generation : Part {
 public:
  Generation(Turn& turn, GenerationState& own, Connection& connection, Workers& workers)
      : Part(turn), own_(own), connection_(connection), workers_(workers) {}

  void on(const event::JoinAck& e);
  void on(const event::Assigned& e);
  void on(const event::StopOrder& e);
  void on(const event::HangFound& e);
  // Returns a worker that ended before it took part in the run, and which no other one replaces: this node
  // cannot take part. Null otherwise.
  const Worker* on(const event::WorkerExited& e);
  void on(const event::GpuFound& e);
  void on(const event::WorkerReady& e);
  void on(const event::WorkerCompleted& e);
  void on(const event::Progressed& e);
  void on(const event::Tick& e);

  // Stops the workers for good, and tells people the reason if that takes long; or does not, as they know it.
  void stop(const std::string& reason);
  void stop_silently(const std::string& reason);
  // A signal ended the job: says so.
  void stop_after_signal(int number);
  // Workers that wait for a generation save their state, and end.
  void end_paused();
  // Nobody here has the state of the program's workers any more. True if there are some that loaded before it
  // was lost, which are ended first: others load in their place.
  bool load_again();
  void kill();

  // No worker is waited for: neither is anything else of this generation.
  void rest();
  // This node's last word on it.
  void close();
  // The next one. REQUIRES: own state's `next`
  void begin_next();

 private:
  void say_again();
  void look(const std::string& reason);
  void end_hang();
  void failed(const Worker& worker, bool never_ran);
  void report_failure(const WorkerOutcome& outcome);
  void broken(const Worker& worker, const std::string& error);
  const WorkerOutcome* left_early() const;
  void broken_by(WorkerOutcome left);
  void cause_unknown();
  void halt(const std::string& reason, bool after_step = false);
  void part();
  void pause(const std::string& reason, bool after_step = false);
  void abort(const std::string& reason);
  void begin_grace();
  void grace_is_over();
  void tell_if_slow(const std::string& reason);
  void tell_why_stopping();
  void trained(const Progress& progress);
  void send_end();
  bool hands_over() const;

  GenerationState& own_;
  Connection& connection_;
  Workers& workers_;
};

}  // namespace dtrun::agent
