#include "worker/checkpoint/background_saver.h"

#include <utility>

namespace dtrun::worker {

BackgroundSaver::BackgroundSaver(std::filesystem::path output_dir, const Program& program, int keep)
    : output_dir_(std::move(output_dir)), program_(program), keep_(keep), thread_([this] { run(); }) {}

BackgroundSaver::~BackgroundSaver() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BackgroundSaver::save(TrainState state) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !waiting_; });
  waiting_ = std::move(state);
  changed_.notify_all();
  rethrow();
}

void BackgroundSaver::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !waiting_ && !writing_; });
  rethrow();
}

void BackgroundSaver::check() {
  const std::lock_guard lock(mutex_);
  rethrow();
}

// What is waiting is written even when closing.
void BackgroundSaver::run() {
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

std::exception_ptr BackgroundSaver::write(const TrainState& state) {
  try {
    save_checkpoint(output_dir_, program_, state, keep_);
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

// REQUIRES: mutex_ held. The caller learns of a failure once.
void BackgroundSaver::rethrow() {
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace dtrun::worker
