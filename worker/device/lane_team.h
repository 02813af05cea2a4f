// The lanes of a worker: lane 0 is the calling thread, each further lane a thread that lives as long as the
// team and sleeps between calls. Gives work to all lanes at once and waits until all are done.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "worker/device/device.h"

namespace dtrun::worker {

class LaneTeam {
 public:
  using Work = std::function<void(int lane_index, Lane& lane)>;

  // capacity: rows of a microbatch.
  LaneTeam(Device& device, const Program& program, int lanes, int capacity);
  ~LaneTeam();
  LaneTeam(const LaneTeam&) = delete;

  int size() const { return static_cast<int>(lanes_.size()); }

  // Runs `work` on every lane; rethrows the first exception once all have ended. Called by the owner's thread
  // only.
  void run(const Work& work);

 private:
  void close();
  void serve(int index);
  void run_one(int index);

  Device& device_;
  const Program& program_;
  const int capacity_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<std::thread> threads_;

  // A call: work_ is set, then round_ goes up, which wakes the threads; each counts running_ down at its end.
  // Both are looked at for a moment before the waiting thread sleeps, which suits steps of a few
  // milliseconds.
  const Work* work_ = nullptr;
  bool closing_ = false;
  std::atomic<unsigned> round_{0};
  std::atomic<int> running_{0};
  std::mutex failure_mutex_;  // guards failure_
  std::exception_ptr failure_;
};

}  // namespace dtrun::worker
