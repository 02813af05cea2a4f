// All signals as events of the loop: they are blocked and read from a signalfd, so that no handler runs.
#pragma once

#include <functional>

#include "agent/system/loop.h"
#include "proto/base/descriptor.h"

namespace dtrun::agent {

class Signals {
 public:
  // Blocks every signal but those of the process's own faults, for this thread and those that it starts.
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;

  // Calls `arrived(number)` on the loop. SIGHUP is left out if it was ignored when dtrun started (nohup(1)).
  void watch(Loop& loop, std::function<void(int)> arrived);

  int fd() const { return fd_.get(); }

 private:
  void read_all();

  Descriptor fd_;
  Loop* loop_ = nullptr;
  bool hangup_ignored_ = false;
  std::function<void(int)> arrived_;
};

// Stops this process as Ctrl-Z would; returns when it is continued.
void stop_self();

}  // namespace dtrun::agent
