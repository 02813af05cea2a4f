#include "tests/cuda_on_cpu/streams.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "tests/cuda_on_cpu/errors.h"
#include "tests/cuda_on_cpu/launch.h"
#include "tests/cuda_on_cpu/settings.h"

namespace cuda_on_cpu {
namespace {

using StreamPtr = std::shared_ptr<CUstream_st>;

// A host function runs after this long though nobody synchronises with it: it may be how the host learns that
// its stream got there.
constexpr std::chrono::milliseconds kPatience{2};

thread_local bool on_device_thread = false;

// What a host thread waits for.
struct Demand {
  std::vector<Point> points;
  bool met = false;
};

bool is_done(const Point& point) { return point.stream->done >= point.position; }

const Point* unmet(const std::vector<Point>& points) {
  const auto found = std::find_if_not(points.begin(), points.end(), is_done);
  return found == points.end() ? nullptr : &*found;
}

// All streams, and the thread that carries out what is in them.
class Scheduler {
 public:
  cudaError_t enqueue(cudaStream_t handle, Operation operation) {
    std::unique_lock lock(mutex_);
    const StreamPtr stream = find(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (broken() != cudaSuccess) return broken();
    if (stream == legacy_) {
      for (const StreamPtr& other : busy_) {
        if (other->blocking && other != legacy_) operation.after.push_back({other, other->enqueued});
      }
    } else if (stream->blocking && legacy_->done < legacy_->enqueued) {
      operation.after.push_back({legacy_, legacy_->enqueued});
    }
    host_functions_ += operation.host_function;
    if (stream->operations.empty()) busy_.push_back(stream);
    stream->operations.push_back(std::move(operation));
    ++stream->enqueued;
    if (settings.streams == Policy::kAtOnce) {
      return meet(lock, {{stream, stream->enqueued}});
    }
    if (settings.streams == Policy::kRandom && random(4) == 0) {
      const StreamPtr some = busy_[random(busy_.size())];
      return meet(lock, {{some, some->enqueued - random(some->operations.size())}});
    }
    if (host_functions_ > 0) wake_device();
    return cudaSuccess;
  }

  cudaError_t wait_for(cudaStream_t handle) {
    std::unique_lock lock(mutex_);
    const StreamPtr stream = find(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    return meet(lock, {{stream, stream->enqueued}});
  }
  cudaError_t wait_for(const std::vector<Point>& points) {
    std::unique_lock lock(mutex_);
    return meet(lock, points);
  }
  cudaError_t wait_for_all() {
    std::unique_lock lock(mutex_);
    std::vector<Point> points;
    for (const StreamPtr& stream : busy_) points.push_back({stream, stream->enqueued});
    return meet(lock, std::move(points));
  }

 private:
  StreamPtr find(cudaStream_t handle) const {
    if (handle == nullptr || handle == cudaStreamLegacy) return legacy_;
    const auto found = streams_.find(handle);
    return found == streams_.end() ? nullptr : found->second;
  }

  // Has the device's thread do what `points` need.
  cudaError_t meet(std::unique_lock<std::mutex>& lock, std::vector<Point> points) {
    Demand demand{std::move(points)};
    if (unmet(demand.points) && broken() == cudaSuccess) {
      demands_.push_back(&demand);
      wake_device();
      met_.wait(lock, [&] { return demand.met; });
    }
    return broken();
  }

  void wake_device() {
    if (!started_) {
      started_ = true;
      std::thread([this] { live(); }).detach();
    }
    work_.notify_one();
  }

  // The device's thread.
  [[noreturn]] void live() {
    pthread_setname_np(pthread_self(), "cuda_on_cpu");
    on_device_thread = true;
    std::unique_lock lock(mutex_);
    for (;;) {
      if (!demands_.empty()) {
        Demand* const demand = demands_.front();
        demands_.pop_front();
        carry_out(lock, demand->points);
        demand->met = true;
        met_.notify_all();
      } else if (host_functions_ == 0) {
        work_.wait(lock);
      } else if (work_.wait_for(lock, kPatience) == std::cv_status::timeout && demands_.empty()) {
        carry_out(lock, {first_host_function()});
      }
    }
  }

  void carry_out(std::unique_lock<std::mutex>& lock, const std::vector<Point>& points) {
    while (const Point* const point = unmet(points)) {
      const StreamPtr stream = pick(*point);
      Operation& operation = stream->operations.front();  // a deque: stays in place while more is enqueued
      if (operation.run) {
        lock.unlock();
        operation.run();
        lock.lock();
      }
      host_functions_ -= operation.host_function;
      stream->operations.pop_front();
      ++stream->done;
      if (stream->operations.empty()) std::erase(busy_, stream);
      if (broken() != cudaSuccess) drop_all();
    }
  }

  // A stream whose first operation can begin.
  StreamPtr pick(Point wanted) {
    if (settings.streams == Policy::kRandom) {
      std::vector<StreamPtr> choices;
      for (const StreamPtr& stream : busy_) {
        const Operation& first = stream->operations.front();
        if (!unmet(first.after) && !first.host_function) choices.push_back(stream);
      }
      if (!choices.empty()) return choices[random(choices.size())];
    }
    // What was waited for had been enqueued before the wait, so this ends.
    while (const Point* const before = unmet(wanted.stream->operations.front().after))
      wanted = Point(*before);
    return wanted.stream;
  }

  Point first_host_function() const {
    for (const StreamPtr& stream : busy_) {
      std::uint64_t position = stream->done;
      for (const Operation& operation : stream->operations) {
        ++position;
        if (operation.host_function) return {stream, position};
      }
    }
    return {legacy_, 0};
  }

  void drop_all() {
    for (const StreamPtr& stream : busy_) {
      stream->operations.clear();
      stream->done = stream->enqueued;
    }
    busy_.clear();
    host_functions_ = 0;
  }

  std::uint64_t random(std::uint64_t below) {
    if (seed_ != settings.seed) random_.seed(seed_ = settings.seed);
    return random_() % below;
  }

  std::mutex mutex_;              // guards all below and every stream
  std::condition_variable work_;  // for the device's thread
  std::condition_variable met_;   // for those who wait
  std::deque<Demand*> demands_;
  StreamPtr legacy_ = std::make_shared<CUstream_st>();
  std::map<cudaStream_t, StreamPtr> streams_;
  std::vector<StreamPtr> busy_;  // those with operations
  int host_functions_ = 0;       // enqueued
  bool started_ = false;
  std::uint64_t seed_ = 0;
  std::mt19937_64 random_;
};

// Lives as long as the device's thread, which nobody ends.
Scheduler& scheduler() {
  static Scheduler& scheduler = *new Scheduler;
  return scheduler;
}

}  // namespace

cudaError_t enqueue(cudaStream_t stream, Operation operation) {
  if (on_device_thread) return cudaErrorNotPermitted;  // a host function must not call CUDA
  return scheduler().enqueue(stream, std::move(operation));
}

cudaError_t wait_for(cudaStream_t stream) {
  if (on_device_thread) return cudaErrorNotPermitted;
  return scheduler().wait_for(stream);
}
cudaError_t wait_for(const std::vector<Point>& points) {
  if (on_device_thread) return cudaErrorNotPermitted;
  return scheduler().wait_for(points);
}
cudaError_t wait_for_all() {
  if (on_device_thread) return cudaErrorNotPermitted;
  return scheduler().wait_for_all();
}

void synchronize(cudaStream_t stream) {
  const cudaError_t error = wait_for(stream);
  const cudaError_t earlier = last_error();
  if (error == cudaSuccess && earlier == cudaSuccess) return;
  std::fprintf(stderr, "cuda_on_cpu: synchronize() ends with CUDA's error %d\n", error ? error : earlier);
  std::abort();
}

cudaError_t enqueue_kernel(const Grid& grid, cudaStream_t stream, std::function<void()> thread) {
  cudaError_t error = check_grid(grid);
  if (error == cudaSuccess) {
    error = enqueue(stream, {[grid, thread = std::move(thread)] { run_grid(grid, thread); }});
  }
  return remember(error);
}

}  // namespace cuda_on_cpu
