// A tiny process that outlives the agent by a moment: should the agent die, even by SIGKILL, it kills every
// process that carries the agent's tag (in its environment or in a limit) (proc_scan.h), removes its
// temporary files, then ends. It ignores signals, lives in its own session, and is dismissed when the agent
// ends in an orderly way.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <utility>

#include "proto/base/descriptor.h"

namespace dtrun::agent {

class Watchdog {
 public:
  // `scratch`: a folder of temporary files that need not exist.
  Watchdog(std::string tag, std::filesystem::path scratch)
      : tag_(std::move(tag)), scratch_(std::move(scratch)) {}
  ~Watchdog() { dismiss(); }
  Watchdog(const Watchdog&) = delete;

  // Forks it. Best called before any thread starts; safe later, when a dead one is replaced.
  bool start();
  // Ends it before it can act, and reaps it.
  void dismiss();

  pid_t pid() const { return pid_; }
  const std::filesystem::path& scratch() const { return scratch_; }
  // To be called when other code has reaped it.
  void forget() {
    pid_ = -1;
    lifeline_.reset();
  }

 private:
  std::string tag_;
  std::filesystem::path scratch_;
  pid_t pid_ = -1;
  Descriptor lifeline_;  // the only write end: when it closes, the agent is dead
};

}  // namespace dtrun::agent
