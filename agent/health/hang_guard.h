// Watches this node's workers for hangs (agent/core/hang.h decides), writes their stacks to files, then kills
// one of them. For the job that is a failure like any other.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/hang.h"
#include "agent/health/stack_dump.h"
#include "agent/output/console.h"
#include "agent/process/worker_process.h"
#include "agent/system/loop.h"

namespace dtrun::agent {

class HangGuard {
 public:
  struct View {
    std::function<std::vector<WorkerProcess*>()> workers;  // all of this generation
    std::function<bool()> held_back;                       // their output is not being read
    // Called when a hang is found, before stacks are written: the worker, and what is wrong with it.
    std::function<void(const WorkerProcess&, const std::string& what)> found;
  };

  HangGuard(Loop& loop, Console& console, HangSettings settings, std::vector<std::string> environment,
            View view);
  ~HangGuard() { rest(); }
  HangGuard(const HangGuard&) = delete;

  // A generation's workers have been started.
  void watch();
  // The workers are being stopped, or have ended: stops looking. A worker whose stacks are being written is
  // not killed from here any more.
  void rest();

 private:
  void schedule();
  void look();
  std::vector<LifeSigns> signs() const;
  void act_on(const std::vector<HungWorker>& hung);
  void dumped();
  void kill_hung();

  Loop& loop_;
  Console& console_;
  const HangSettings settings_;
  const std::vector<std::string> environment_;
  const View view_;
  std::optional<HangDetector> detector_;  // of the generation under watch
  std::optional<Loop::TimerId> timer_;
  // From the moment a hang is found to the kill.
  std::vector<std::unique_ptr<StackDump>> dumps_;
  std::size_t dumps_left_ = 0;
  int hung_rank_ = 0;  // local
  std::string what_;   // what is wrong with that worker
};

}  // namespace dtrun::agent
