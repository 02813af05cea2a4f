// One thread that writes checkpoints behind the training.
#pragma once

#include <condition_variable>
#include <exception>
#include <filesystem>
#include <functional>
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

  // Writes `state`, unless it has diverged, once `make_whole`, called on the writing thread first, has
  // returned. From then on it must stay as it is until wait() returned or threw. REQUIRES: nothing is being
  // written.
  void save(const TrainState& state, std::function<void()> make_whole = {});
  void wait();   // until it is on disk
  void check();  // does not block; so a full disk is known before the next save

 private:
  void run();
  std::exception_ptr write(const TrainState& state, const std::function<void()>& make_whole);
  void rethrow();

  const std::filesystem::path output_dir_;
  const Program program_;
  const int keep_;

  std::mutex mutex_;  // guards what follows, but for the thread
  std::condition_variable changed_;
  const TrainState* state_ = nullptr;  // what is to be written, until it is
  std::function<void()> make_whole_;   // likewise
  bool closing_ = false;
  std::exception_ptr failure_;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace dtrun::worker
