// Lets many threads work on one state, one at a time. Runs the tasks that they post, one after the other in
// the order of posting, and wakes up by itself when the state has something due. Stands between gRPC's
// threads and the pure core.
//
// A task runs on the thread that posts it, inside post(), unless another thread is working on the state just
// then: in that case the other thread runs it. A thread of the strand's own waits for deadlines. Handing
// every task to that thread instead would cost two context switches for each of ten thousand agents that join
// at once.
#pragma once

#include <condition_variable>
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
  // Runs after tasks and at deadlines, like a task. Acts on passed deadlines and returns the next one, in
  // milliseconds of steady_now()'s clock; INT64_MAX for none.
  using Tend = std::function<Millis()>;

  Strand() = default;
  ~Strand() { stop(); }

  void start(Tend tend);  // REQUIRES: nothing was posted yet
  void stop();            // returns when earlier tasks have run; later ones are dropped

  // Any thread, also from inside a task. REQUIRES: the caller holds no lock that a task takes.
  void post(Task task);
  // The same, but never runs the task inside this call: for callers that must not wait for other threads'
  // tasks. A task that has not begun when the strand stops is dropped.
  void hand_over(Task task);

 private:
  void work(std::unique_lock<std::mutex>& lock);
  void wait_for_deadlines();

  Tend tend_;
  std::mutex mutex_;  // guards the rest
  std::deque<Task> tasks_;
  bool busy_ = false;  // some thread works on the state
  bool ending_ = false;
  Millis deadline_ = std::numeric_limits<Millis>::max();
  std::condition_variable earlier_;  // wakes thread_: an earlier deadline, a due one may run now, or the end
  bool overdue_ = false;             // a deadline is due, but another thread is busy
  std::condition_variable idle_;
  std::thread thread_;  // waits for deadlines
};

}  // namespace dtrun::rendezvous
