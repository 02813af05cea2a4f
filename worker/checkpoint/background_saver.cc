// The writer thread: training goes on while the disk works.
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "worker/checkpoint/checkpoint.h"

namespace dtrun::worker {

namespace {

class ThreadSaver : public BackgroundSaver {
 public:
  ThreadSaver(std::filesystem::path output_dir, const Network& network, int keep)
      : output_dir_(std::move(output_dir)), network_(network), keep_(keep), thread_([this] { run(); }) {}

  ~ThreadSaver() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void save(TrainState state) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !waiting_ || failure_; });
    rethrow();
    waiting_ = std::move(state);
    lock.unlock();
    changed_.notify_all();
  }

  void wait() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !waiting_ && !writing_; });
    rethrow();
  }

  void check() override {
    const std::lock_guard lock(mutex_);
    rethrow();
  }

 private:
  // What is waiting is written even when closing.
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return waiting_ || closing_; });
      if (!waiting_) return;
      const TrainState state = *std::exchange(waiting_, std::nullopt);
      writing_ = true;
      lock.unlock();
      changed_.notify_all();
      std::exception_ptr failure = write(state);
      lock.lock();
      writing_ = false;
      if (failure) failure_ = failure;
      changed_.notify_all();
    }
  }

  std::exception_ptr write(const TrainState& state) {
    try {
      save_checkpoint(output_dir_, network_, state, keep_);
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }

  // REQUIRES: mutex_ held. The caller learns of a failure once.
  void rethrow() {
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

  const std::filesystem::path output_dir_;
  const Network network_;
  const int keep_;

  std::mutex mutex_;  // guards what follows, but for the thread
  std::condition_variable changed_;
  std::optional<TrainState> waiting_;
  bool writing_ = false;
  bool closing_ = false;
  std::exception_ptr failure_;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace

std::unique_ptr<BackgroundSaver> make_background_saver(std::filesystem::path output_dir,
                                                       const Network& network, int keep) {
  return std::make_unique<ThreadSaver>(std::move(output_dir), network, keep);
}

}  // namespace dtrun::worker
