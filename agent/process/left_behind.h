// Ends the processes that a worker which ended with 0 left behind, in the background or as daemons: they get
// SIGTERM, have a time to end, and are killed. They may be saving the results (rsync, an upload), so people
// are told.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "agent/process/proc_scan.h"
#include "agent/system/loop.h"

namespace dtrun::agent {

class LeftBehind {
 public:
  struct Events {
    std::function<void(const std::string&)> tell;  // people
    std::function<void()> ended;                   // none is left; may destroy this object
  };

  // To be made while the worker is a zombie, so that its number is still that of its group. `tag` is the
  // worker's. A process that ends by itself within a moment, as helpers do that see their pipe close, is not
  // reported and gets no signal.
  LeftBehind(Loop& loop, std::string tag, pid_t worker, std::string name, Loop::Clock::time_point deadline,
             Events events);
  LeftBehind(const LeftBehind&) = delete;

  // To be called when an orphan was reaped: one of them may have ended, and left others.
  void look();
  bool any() const { return !found_.empty(); }
  // Kills the rest now, and tells people `why`.
  void kill(const std::string& why);

 private:
  void end_them();
  void done();
  std::string text() const;
  std::string patience() const;
  void find();
  void too_late();

  const std::string tag_;
  const std::string name_;  // the worker's, for people
  const Loop::Clock::time_point begin_ = Loop::Clock::now(), deadline_;
  const Events events_;
  std::vector<FoundProcess> found_;
  Timer timer_;
};

}  // namespace dtrun::agent
