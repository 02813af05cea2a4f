// One thread that writes checkpoints behind the training.
#pragma once

#include <condition_variable>
#include <exception>
#include <filesystem>
#include <mutex>
#include <thread>

#include "worker/checkpoint/checkpoint.h"

namespace dtrun::worker {

// Called by one thread. wait() and check() rethrow a writer's WorkerError, once.
class BackgroundSaver {
 public:
  // `keep`: see save_checkpoint.
  BackgroundSaver(std::filesystem::path output_dir, const Program& program, int keep);
  ~BackgroundSaver();  // waits for what is being written
  BackgroundSaver(const BackgroundSaver&) = delete;

  // Writes `state`, unless it has diverged. It must stay as it is until wait() returned or threw.
  // REQUIRES: nothing is being written.
  void save(const TrainState& state);
  void wait();   // until it is on disk
  void check();  // does not block; so a full disk is known before the next save

 private:
  void run();
  std::exception_ptr write(const TrainState& state);
  void rethrow();

  const std::filesystem::path output_dir_;
  const Program program_;
  const int keep_;

  std::mutex mutex_;  // guards what follows, but for the thread
  std::condition_variable changed_;
  const TrainState* state_ = nullptr;  // what is to be written, until it is
  bool closing_ = false;
  std::exception_ptr failure_;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace dtrun::worker
