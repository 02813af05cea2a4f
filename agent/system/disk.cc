#include "agent/system/disk.h"

#include <sys/eventfd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "proto/base/descriptor.h"

namespace dtrun::agent {

struct Disk::Shared {
  struct Task {
    std::function<void()> work, done;
    std::size_t bytes = 0;
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Task> waiting;  // guarded by mutex, like those below
  std::vector<std::function<void()>> done;
  std::uint64_t finished = 0;  // work since the beginning
  std::size_t bytes = 0;       // of those that wait, and of the one in work
  bool working = false, begun = false, deserted = false;
  Descriptor wake{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};

  bool idle() const { return waiting.empty() && !working; }

  // Ends once nobody can post any more.
  void work() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return !waiting.empty() || deserted; });
      if (waiting.empty()) return;
      Task task = std::move(waiting.front());
      waiting.pop_front();
      working = true;
      lock.unlock();
      task.work();
      task.work = nullptr;
      lock.lock();
      working = false;
      ++finished;
      bytes -= task.bytes;
      if (task.done && !deserted) {
        done.push_back(std::move(task.done));
        eventfd_write(wake.get(), 1);
      }
      changed.notify_all();
    }
  }
};

Disk::Disk(Loop& loop) : loop_(loop), shared_(std::make_shared<Shared>()) {
  loop_.watch(shared_->wake.get(), EPOLLIN, [this](std::uint32_t) { deliver(); });
}

Disk::~Disk() {
  loop_.forget(shared_->wake.get());
  const std::lock_guard lock(shared_->mutex);
  shared_->deserted = true;
  shared_->done.clear();
  for (Shared::Task& task : shared_->waiting) task.done = nullptr;
  shared_->changed.notify_all();
}

void Disk::deliver() {
  eventfd_t ignored;
  eventfd_read(shared_->wake.get(), &ignored);
  std::vector<std::function<void()>> done;
  {
    const std::lock_guard lock(shared_->mutex);
    done.swap(shared_->done);
  }
  for (const std::function<void()>& one : done) one();
}

void Disk::post(std::function<void()> work, std::function<void()> done, std::size_t bytes) {
  const std::lock_guard lock(shared_->mutex);
  shared_->waiting.push_back({.work = std::move(work), .done = std::move(done), .bytes = bytes});
  shared_->bytes += bytes;
  ++posted_;
  if (!std::exchange(shared_->begun, true)) std::thread([shared = shared_] { shared->work(); }).detach();
  shared_->changed.notify_all();
}

bool Disk::run(std::function<void()> work) {
  post(std::move(work));
  std::unique_lock lock(shared_->mutex);
  const bool slow = shared_->finished < awaited_;
  awaited_ = posted_;
  const auto patience = slow ? std::chrono::milliseconds(0) : kPatience;
  return shared_->changed.wait_for(lock, patience, [this] { return shared_->finished >= awaited_; });
}

bool Disk::idle() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->idle();
}

std::size_t Disk::queued() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->bytes;
}

}  // namespace dtrun::agent
