#include "worker/device/lane_team.h"

#include <chrono>
#include <utility>

namespace dtrun::worker {
namespace {

// A sleeping thread takes some ten microseconds to wake up, several times in a step; for this long a thread
// looks again and again instead, behind all others that have work.
constexpr std::chrono::microseconds kSpin{50};

template <typename T>
void wait_for_change(const std::atomic<T>& value, T old) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  while (std::chrono::steady_clock::now() < end) {
    if (value.load(std::memory_order_acquire) != old) return;
    std::this_thread::yield();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

LaneTeam::LaneTeam(Device& device, const Program& program, int lanes, int capacity)
    : device_(device), program_(program), capacity_(capacity), lanes_(lanes) {
  for (int index = 1; index < lanes; ++index) threads_.emplace_back([this, index] { serve(index); });
  // A lane is made on the thread that will run it.
  try {
    run([](int, Lane&) {});
  } catch (...) {
    close();
    throw;
  }
}

LaneTeam::~LaneTeam() { close(); }

void LaneTeam::close() {
  closing_ = true;
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void LaneTeam::run(const Work& work) {
  work_ = &work;
  running_.store(size() - 1, std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  run_one(0);
  for (int left = running_.load(std::memory_order_acquire); left != 0;
       left = running_.load(std::memory_order_acquire)) {
    wait_for_change(running_, left);
  }
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void LaneTeam::serve(int index) {
  for (unsigned seen = 0;; ++seen) {
    wait_for_change(round_, seen);
    if (closing_) return;
    run_one(index);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
  }
}

void LaneTeam::run_one(int index) {
  try {
    std::unique_ptr<Lane>& lane = lanes_[index];
    if (!lane) lane = device_.make_lane(program_, capacity_);
    (*work_)(index, *lane);
  } catch (...) {
    std::lock_guard lock(failure_mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

}  // namespace dtrun::worker
