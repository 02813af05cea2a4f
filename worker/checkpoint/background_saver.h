// One thread that writes checkpoints behind the training.
#pragma once

#include <condition_variable>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>

#include "proto/core/training.h"
#include "worker/checkpoint/checkpoint.h"

namespace dtrun::worker {

// Called by one thread. wait() and check() rethrow a writer's WorkerError, once.
class BackgroundSaver {
 public:
  // `keep`: see save_checkpoint.
  BackgroundSaver(std::filesystem::path output_dir, const Program& program, int keep);
  ~BackgroundSaver();  // waits until the state in hand is written
  BackgroundSaver(const BackgroundSaver&) = delete;

  // Writes `state`, unless it has diverged, after a call of `make_whole` on the writing thread. From that
  // call's return on `state` must not change until wait() has returned or thrown. REQUIRES: no state is being
  // written.
  void save(const TrainState& state, std::function<void()> make_whole = {});
  void wait();   // until it is on disk
  void check();  // does not block; tells of a full disk before the next save
  // save_checkpoint() on this thread. REQUIRES: no state is being written.
  void save_here(const TrainState& state, int keep);
  // Since the construction.
  Checkpoints checkpoints() const;

 private:
  void run();
  std::exception_ptr write(const TrainState& state, const std::function<void()>& make_whole);
  void save_and_count(const TrainState& state, int keep);
  void rethrow();

  const std::filesystem::path output_dir_;
  const Program program_;
  const int keep_;

  mutable std::mutex mutex_;  // guards the members below, without the thread
  std::condition_variable changed_;
  const TrainState* state_ = nullptr;  // the state to write, until it is written
  std::function<void()> make_whole_;   // belongs to state_
  bool closing_ = false;
  std::exception_ptr failure_;
  Checkpoints checkpoints_;

  std::thread thread_;  // last: the thread uses all of the above
};

}  // namespace dtrun::worker
