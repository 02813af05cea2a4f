#include "rendezvous/server/strand.h"

#include <chrono>
#include <utility>

namespace dtrun::rendezvous {

Millis steady_now() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count();
}

void Strand::start(Tend tend) {
  tend_ = std::move(tend);
  thread_ = std::thread([this] { wait_for_deadlines(); });
}

void Strand::stop() {
  {
    std::unique_lock lock(mutex_);
    ending_ = true;
    idle_.wait(lock, [this] { return !busy_; });
  }
  earlier_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Strand::post(Task task) {
  std::unique_lock lock(mutex_);
  if (ending_) return;
  tasks_.push_back(std::move(task));
  if (!busy_) work(lock);
}

void Strand::hand_over(Task task) {
  const std::lock_guard lock(mutex_);
  if (ending_) return;
  tasks_.push_back(std::move(task));
  if (busy_) return;  // that thread takes it
  deadline_ = 0;
  earlier_.notify_one();
}

// Runs posted tasks, also those posted meanwhile, and due ones. REQUIRES: not busy.
void Strand::work(std::unique_lock<std::mutex>& lock) {
  busy_ = true;
  std::int64_t next = 0;
  do {
    std::deque<Task> tasks = std::exchange(tasks_, {});
    lock.unlock();
    for (const Task& task : tasks) task();
    tasks.clear();  // destroys the tasks' captures without the lock
    next = tend_();
    lock.lock();
  } while (!tasks_.empty());
  busy_ = false;
  const bool earlier = next < std::exchange(deadline_, next);
  if (earlier || overdue_) earlier_.notify_one();
  if (ending_) idle_.notify_all();
}

void Strand::wait_for_deadlines() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    const bool due = deadline_ <= steady_now();
    overdue_ = due && busy_;
    if (due && !busy_)
      work(lock);
    else if (overdue_ || deadline_ == std::numeric_limits<std::int64_t>::max())
      earlier_.wait(lock);
    else
      earlier_.wait_until(lock, std::chrono::steady_clock::time_point(std::chrono::milliseconds(deadline_)));
  }
}

}  // namespace dtrun::rendezvous
