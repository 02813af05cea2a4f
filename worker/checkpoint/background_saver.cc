#include "worker/checkpoint/background_saver.h"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>

#include "worker/base/operation_log.h"

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

void BackgroundSaver::save(const TrainState& state, std::function<void()> make_whole) {
  const std::lock_guard lock(mutex_);
  state_ = &state;
  make_whole_ = std::move(make_whole);
  changed_.notify_all();
}

void BackgroundSaver::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return state_ == nullptr; });
  rethrow();
}

void BackgroundSaver::check() {
  const std::lock_guard lock(mutex_);
  rethrow();
}

// Writes a state that was handed over before it ends, also when closing.
void BackgroundSaver::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return state_ != nullptr || closing_; });
    if (state_ == nullptr) return;
    const TrainState& state = *state_;
    const std::function<void()> make_whole = std::exchange(make_whole_, nullptr);
    lock.unlock();
    std::exception_ptr failure = write(state, make_whole);
    lock.lock();
    state_ = nullptr;
    if (failure) failure_ = failure;
    changed_.notify_all();
  }
}

std::exception_ptr BackgroundSaver::write(const TrainState& state, const std::function<void()>& make_whole) {
  try {
    if (make_whole) make_whole();
    if (parameters_are_finite(state)) save_and_count(state, keep_);
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

void BackgroundSaver::save_here(const TrainState& state, int keep) { save_and_count(state, keep); }

// REQUIRES: mutex_ not held.
void BackgroundSaver::save_and_count(const TrainState& state, int keep) {
  const OperationLog::Span written(Operation::Kind::kWrite);
  const auto begin = std::chrono::steady_clock::now();
  std::int64_t bytes = 0;
  try {
    const std::filesystem::path directory = save_checkpoint(output_dir_, program_, state, keep);
    std::error_code ignored;  // another process may already have removed it
    for (const auto& file : std::filesystem::directory_iterator(directory, ignored))
      bytes += static_cast<std::int64_t>(file.file_size(ignored));
  } catch (...) {
    const std::lock_guard lock(mutex_);
    ++checkpoints_.failed;
    throw;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::lock_guard lock(mutex_);
  ++checkpoints_.written;
  checkpoints_.step = state.step;
  checkpoints_.seconds = seconds;
  checkpoints_.bytes = bytes;
}

Checkpoints BackgroundSaver::checkpoints() const {
  const std::lock_guard lock(mutex_);
  return checkpoints_;
}

// REQUIRES: mutex_ held. Reports each failure once.
void BackgroundSaver::rethrow() {
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace dtrun::worker
