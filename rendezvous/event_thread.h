// One named thread that owns some state: runs the tasks that others post, in order, and wakes up by itself
// when its state says that something is due. The seam between gRPC's threads and the pure core.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace dtrun::rendezvous {

// Milliseconds of this host's steady clock.
std::int64_t steady_now();

class EventThread {
 public:
  using Task = std::function<void()>;
  // Runs on the thread after tasks and at deadlines: does what is due, returns the next deadline
  // (steady_now's clock, INT64_MAX for none).
  using Tend = std::function<std::int64_t()>;

  EventThread() = default;
  ~EventThread() { stop(); }

  void start(Tend tend);
  void stop();           // runs what was posted before it, then ends the thread
  void post(Task task);  // any thread

 private:
  void run();

  Tend tend_;
  std::mutex mutex_;  // guards the two below
  std::deque<Task> tasks_;
  bool ending_ = false;
  std::condition_variable wake_;
  std::thread thread_;
};

}  // namespace dtrun::rendezvous
