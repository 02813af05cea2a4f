// Some state that is one thread's at a time: runs the tasks that others post, one after the other in the
// order of posting, and wakes up by itself when the state says that something is due. The seam between gRPC's
// threads and the pure core.
//
// Who posts while nobody works on the state does so itself, and does what others post meanwhile, too: handing
// over to a thread would cost each of ten thousand agents that join at once two switches of context. So a
// task may run inside post(), on any thread that posts, or on the one that waits for deadlines.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <mutex>
#include <thread>

#include "proto/core/millis.h"

namespace dtrun::rendezvous {

// Milliseconds of this host's steady clock.
Millis steady_now();

class Strand {
 public:
  using Task = std::function<void()>;
  // Runs after tasks and at deadlines, like a task: does what is due, returns the next deadline (steady_now's
  // clock, INT64_MAX for none).
  using Tend = std::function<Millis()>;

  Strand() = default;
  ~Strand() { stop(); }

  void start(Tend tend);  // REQUIRES: nothing was posted yet
  void stop();            // returns when what was posted before has run; what is posted later is dropped

  // Any thread, also from inside a task. REQUIRES: the caller holds no lock that a task takes.
  void post(Task task);

 private:
  void work(std::unique_lock<std::mutex>& lock);
  void wait_for_deadlines();

  Tend tend_;
  std::mutex mutex_;  // guards the rest
  std::deque<Task> tasks_;
  bool busy_ = false;  // some thread works on the state
  bool ending_ = false;
  Millis deadline_ = std::numeric_limits<Millis>::max();
  std::condition_variable earlier_;  // the deadline is, or the end is there, or a due deadline's turn
  bool overdue_ = false;             // a deadline waits for its turn
  std::condition_variable idle_;
  std::thread thread_;  // waits for deadlines
};

}  // namespace dtrun::rendezvous
