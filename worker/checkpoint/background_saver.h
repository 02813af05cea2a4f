// One thread that writes checkpoints behind the training.
#pragma once

#include <condition_variable>
#include <exception>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>

#include "worker/checkpoint/checkpoint.h"

namespace dtrun::worker {

// Called by one thread. save(), wait() and check() rethrow a writer's WorkerError, once; what save() was
// given is written all the same.
class BackgroundSaver {
 public:
  // `keep`: see save_checkpoint.
  BackgroundSaver(std::filesystem::path output_dir, const Program& program, int keep);
  ~BackgroundSaver();  // writes what waits, and waits for it
  BackgroundSaver(const BackgroundSaver&) = delete;

  void save(TrainState state);  // at most one waits to be written; blocks while one does
  void wait();                  // until all is on disk
  void check();                 // does not block; so a full disk is known before the next save

 private:
  void run();
  std::exception_ptr write(const TrainState& state);
  void rethrow();

  const std::filesystem::path output_dir_;
  const Program program_;
  const int keep_;

  std::mutex mutex_;  // guards what follows, but for the thread
  std::condition_variable changed_;
  std::optional<TrainState> waiting_;
  bool writing_ = false;
  bool closing_ = false;
  std::exception_ptr failure_;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace dtrun::worker
