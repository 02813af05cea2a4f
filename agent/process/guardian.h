// A tiny process that outlives the agent by a moment: should the agent die, even by SIGKILL, it kills every
// process that carries the agent's token or its mark (proc_scan.h), removes its temporary files, then ends.
// It ignores signals, lives in its own session, and is dismissed when the agent ends in an orderly way.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <utility>

#include "agent/system/descriptor.h"

namespace dtrun::agent {

class Guardian {
 public:
  // `scratch`: a folder of temporary files that need not exist.
  Guardian(std::string token, std::filesystem::path scratch)
      : token_(std::move(token)), scratch_(std::move(scratch)) {}
  ~Guardian() { dismiss(); }
  Guardian(const Guardian&) = delete;

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
  std::string token_;
  std::filesystem::path scratch_;
  pid_t pid_ = -1;
  Descriptor lifeline_;  // the only write end: when it closes, the agent is dead
};

}  // namespace dtrun::agent
