// Watches this node's workers for hangs (agent/core/hang.h decides), and looks where all of them stand before
// one is ended. For the job a hang is a failure like any other; the coordinator judges from the places of all
// which worker is at fault (rendezvous/core/observe/hang.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/hang.h"
#include "agent/health/inspection.h"
#include "agent/process/worker_process.h"
#include "agent/system/loop.h"

namespace dtrun::agent {

class HangGuard {
 public:
  // By node; nothing: it did not say.
  using Counts = std::vector<std::optional<std::uint64_t>>;
  struct View {
    std::function<std::vector<WorkerProcess*>()> workers;                     // all of this generation
    std::function<const std::map<pid_t, rendezvous::WorkerUsage>&()> usages;  // of all workers, by process
    std::function<bool()> matters;                                            // false: they are being stopped
    std::function<bool()> held_back;  // their output is not being read
    // A worker that waits for its peers gives heartbeats nevertheless, or has no peers on another node: one
    // that is silent alone is at fault.
    std::function<bool()> silence_tells;
    // The other workers keep their state and go on, so only those at fault are ended.
    std::function<bool()> spares_victims;
    // Asks the other nodes for the collectives of their silent workers, as one whose have begun `mine`, and
    // calls `done` after `patience` at the latest. False: there is no other node.
    std::function<bool(std::uint64_t mine, std::chrono::milliseconds patience,
                       std::function<void(const Counts&)> done)>
        compare;
    std::function<void(const std::string&)> tell;  // people
    // Workers hang, and all have been looked at. Each with how it will have ended.
    std::function<void(std::vector<WorkerOutcome> hung)> found;
  };

  HangGuard(Loop& loop, HangSettings settings, std::vector<std::string> environment, View view);
  ~HangGuard() { rest(); }
  HangGuard(const HangGuard&) = delete;

  // A generation's workers have been started.
  void watch();
  // Looks where the workers stand: one of another node hangs. If a look is under way already, that one goes
  // on.
  void look(Millis limit);
  // Kills the workers of `found`.
  void kill_hung();
  // The workers that have got nothing done of late, by local rank. Nothing is done to them.
  const std::map<int, rendezvous::Quiet>& quiet() const { return quiet_; }
  // The workers are being stopped, or have ended: stops watching, and a look under way is over.
  void rest();

 private:
  struct Found {
    int local_rank = 0;
    std::string what;
    Activity known = Activity::kUnseen;  // kSilent or kRaised: at fault; else the look tells
  };

  void schedule();
  void check();
  void note_quiet();
  rendezvous::Quiet describe(const QuietWorker& quiet, const WorkerProcess& worker) const;
  void look_for_people();
  std::vector<LifeSigns> signs() const;
  bool ask_other_nodes(const std::vector<HungWorker>& hung);
  void act_on(const std::vector<HungWorker>& hung);
  void begin_look(std::chrono::milliseconds limit);
  void looked();
  void spare_victims();
  void take_standings();
  WorkerProcess* find(int local_rank) const;

  Loop& loop_;
  const HangSettings settings_;
  const std::vector<std::string> environment_;
  const View view_;
  std::optional<HangDetector> detector_;  // of the generation under watch
  Timer timer_{loop_};
  int asked_ = 0;  // other nodes, so often: an answer to an earlier question is dropped
  std::unique_ptr<Inspection> inspection_;
  std::map<int, rendezvous::Quiet> quiet_;
  // Where workers stand that people are told of. None is ended for it.
  std::unique_ptr<Inspection> notice_inspection_;
  bool looked_for_people_ = false;
  std::vector<Found> found_;  // the workers that hang; empty: none, or only on another node
  bool advised_ = false;
};

}  // namespace dtrun::agent
