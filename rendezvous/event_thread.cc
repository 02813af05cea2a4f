#include "rendezvous/event_thread.h"

#include <chrono>
#include <limits>
#include <utility>

namespace dtrun::rendezvous {

std::int64_t steady_now() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count();
}

void EventThread::start(Tend tend) {
  tend_ = std::move(tend);
  thread_ = std::thread([this] { run(); });
}

void EventThread::stop() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void EventThread::post(Task task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void EventThread::run() {
  std::int64_t deadline = std::numeric_limits<std::int64_t>::max();
  std::unique_lock lock(mutex_);
  while (true) {
    const auto woken = [this] { return ending_ || !tasks_.empty(); };
    if (deadline == std::numeric_limits<std::int64_t>::max())
      wake_.wait(lock, woken);
    else
      wake_.wait_until(lock, std::chrono::steady_clock::time_point(std::chrono::milliseconds(deadline)),
                       woken);
    if (ending_ && tasks_.empty()) return;
    const std::deque<Task> tasks = std::exchange(tasks_, {});
    lock.unlock();
    for (const Task& task : tasks) task();
    deadline = tend_();
    lock.lock();
  }
}

}  // namespace dtrun::rendezvous
