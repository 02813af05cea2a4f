#include "tests/cuda_on_cpu/scheduler.h"

#include <pthread.h>

#include <algorithm>
#include <thread>

#include "tests/cuda_on_cpu/errors.h"
#include "tests/cuda_on_cpu/faults.h"
#include "tests/cuda_on_cpu/machine.h"
#include "tests/cuda_on_cpu/memory.h"
#include "tests/cuda_on_cpu/settings.h"

namespace cuda_on_cpu {
namespace {

using std::chrono::microseconds, std::chrono::milliseconds;

// What another process may wait for runs after this time without a waiter; sooner, and too little would be
// late.
constexpr milliseconds kPatience{20};
// An operation that waits for another process is asked again after this long, the longer the longer it waits.
constexpr microseconds kAskAgain{50}, kAskAgainAtMost{1000};

bool is_done(const Point& point) { return !point.stream || point.stream->done >= point.position; }

const Point* unmet(const std::vector<Point>& points) {
  const auto found = std::find_if_not(points.begin(), points.end(), is_done);
  return found == points.end() ? nullptr : &*found;
}

}  // namespace

// ---- Streams ----

cudaStream_t Scheduler::create_stream(int device, bool blocking) {
  const auto stream = std::make_shared<CUstream_st>();
  stream->device = device;
  stream->blocking = blocking;
  const Lock lock(mutex_);
  streams_[stream.get()] = stream;
  return stream.get();
}

cudaError_t Scheduler::destroy_stream(cudaStream_t handle) {
  const Lock lock(mutex_);
  const auto found = streams_.find(handle);
  if (found == streams_.end()) return cudaErrorInvalidResourceHandle;
  if (const auto capture = found->second->capture) {
    capture->invalid = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  streams_.erase(found);
  return cudaSuccess;
}

cudaError_t Scheduler::enqueue(cudaStream_t handle, Operation operation, bool blocks, Point* point) {
  Lock lock(mutex_);
  const StreamPtr stream = find(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (operation.launch && stream->device != current_device()) return cudaErrorInvalidResourceHandle;
  if (point) *point = {stream, stream->enqueued + 1};
  return put(lock, stream, std::move(operation), blocks);
}

cudaError_t Scheduler::wait_for(const Point& point) {
  Lock lock(mutex_);
  return meet(lock, {point});
}

cudaError_t Scheduler::wait_for_stream(cudaStream_t handle) {
  Lock lock(mutex_);
  const StreamPtr stream = find(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (stream->capture) {
    stream->capture->invalid = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  return meet(lock, {{stream, stream->enqueued}});
}

cudaError_t Scheduler::wait_for_device(int device) {
  Lock lock(mutex_);
  std::vector<Point> points;
  for (const StreamPtr& stream : busy_) {
    if (stream->device == device) points.push_back({stream, stream->enqueued});
  }
  return meet(lock, std::move(points));
}

cudaError_t Scheduler::check_stream(cudaStream_t handle) {
  const Lock lock(mutex_);
  return find(handle) ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

// ---- Events ----

cudaEvent_t Scheduler::create_event(int device, bool timing) {
  const auto event = std::make_shared<CUevent_st>();
  event->device = device;
  event->timing = timing;
  const Lock lock(mutex_);
  events_[event.get()] = event;
  return event.get();
}

cudaError_t Scheduler::destroy_event(cudaEvent_t handle) {
  const Lock lock(mutex_);
  return events_.erase(handle) == 1 ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t Scheduler::record(cudaEvent_t handle, cudaStream_t to, bool external) {
  Lock lock(mutex_);
  const EventPtr event = find(handle);
  const StreamPtr stream = find(to);
  if (!event || !stream || event->device != stream->device) return cudaErrorInvalidResourceHandle;
  if (stream->capture && external) return capture(*stream, {}, event);
  if (stream->capture) {
    event->capture = stream->capture;
    event->nodes = stream->last_nodes;
    event->point = {};
    return cudaSuccess;
  }
  return put_record(lock, stream, *event);
}

cudaError_t Scheduler::put_record(Lock& lock, const StreamPtr& stream, CUevent_st& event) {
  event.capture = nullptr;
  event.point = {stream, stream->enqueued + 1};
  event.time = std::make_shared<CUevent_st::Time>();
  return put(lock, stream, {[time = event.time] { *time = std::chrono::steady_clock::now(); }}, false);
}

cudaError_t Scheduler::wait_in_stream(cudaStream_t handle, cudaEvent_t of) {
  Lock lock(mutex_);
  const EventPtr event = find(of);
  const StreamPtr stream = find(handle);
  if (!event || !stream) return cudaErrorInvalidResourceHandle;
  if (stream->capture || event->capture) return capture_wait(stream, *event);
  return put(lock, stream, {{}, {event->point}}, false);
}

cudaError_t Scheduler::wait_for_event(cudaEvent_t handle) {
  Lock lock(mutex_);
  const EventPtr event = find(handle);
  if (!event) return cudaErrorInvalidResourceHandle;
  if (event->capture) return cudaErrorCapturedEvent;
  return meet(lock, {event->point});
}

cudaError_t Scheduler::query_event(cudaEvent_t handle) {
  Lock lock(mutex_);
  const EventPtr event = find(handle);
  if (!event) return cudaErrorInvalidResourceHandle;
  if (event->capture) return cudaErrorCapturedEvent;
  return query(lock, event->point);
}

cudaError_t Scheduler::elapsed(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const Lock lock(mutex_);
  const EventPtr from = find(start), to = find(end);
  if (!from || !to || !from->timing || !to->timing || !from->time || !to->time) {
    return cudaErrorInvalidResourceHandle;
  }
  if (!is_done(from->point) || !is_done(to->point)) return cudaErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(to->time->value() - from->time->value()).count();
  return cudaSuccess;
}

// ---- Capture and graphs ----

cudaError_t Scheduler::begin_capture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  const Lock lock(mutex_);
  if (handle == nullptr || handle == cudaStreamLegacy) return cudaErrorStreamCaptureUnsupported;
  const StreamPtr stream = find(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (stream->capture) return cudaErrorIllegalState;
  cuda_on_cpu::begin_capture(stream, mode);
  captures_.push_back(stream->capture);
  return cudaSuccess;
}

cudaError_t Scheduler::end_capture(cudaStream_t handle, cudaGraph_t* graph) {
  const Lock lock(mutex_);
  *graph = nullptr;
  const StreamPtr stream = find(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  auto result = std::make_unique<CUgraph_st>();
  const cudaError_t error = cuda_on_cpu::end_capture(stream, &result->nodes);
  std::erase_if(captures_, [](const std::weak_ptr<Capture>& weak) {
    const auto capture = weak.lock();
    return !capture || capture->ended;
  });
  if (error != cudaSuccess) return error;
  if (const cudaError_t fault = fault_of_capture(); fault != cudaSuccess) return fault;
  *graph = result.get();
  graphs_[*graph] = std::move(result);
  return cudaSuccess;
}

bool Scheduler::is_capturing(cudaStream_t handle) {
  const Lock lock(mutex_);
  const StreamPtr stream = find(handle);
  return stream && stream->capture;
}

cudaError_t Scheduler::allowed_in_capture() {
  const Lock lock(mutex_);
  cudaError_t error = cudaSuccess;
  for (const auto& weak : captures_) {
    const auto capture = weak.lock();
    if (!capture || capture->ended || capture->mode == cudaStreamCaptureModeRelaxed) continue;
    if (capture->mode == cudaStreamCaptureModeGlobal || capture->thread == std::this_thread::get_id()) {
      capture->invalid = true;
      error = cudaErrorStreamCaptureUnsupported;
    }
  }
  return error;
}

cudaError_t Scheduler::instantiate(cudaGraph_t graph, cudaGraphExec_t* exec) {
  const Lock lock(mutex_);
  const auto found = graphs_.find(graph);
  if (found == graphs_.end()) return cudaErrorInvalidValue;
  auto result = std::make_unique<CUgraphExec_st>();
  result->nodes = std::make_shared<const Nodes>(found->second->nodes);
  *exec = result.get();
  execs_[*exec] = std::move(result);
  return cudaSuccess;
}

cudaError_t Scheduler::launch(cudaGraphExec_t exec, cudaStream_t handle) {
  Lock lock(mutex_);
  const auto found = execs_.find(exec);
  const StreamPtr stream = find(handle);
  if (found == execs_.end()) return cudaErrorInvalidValue;
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (stream->capture) return cudaErrorStreamCaptureUnsupported;  // CUDA would nest it
  const auto nodes = found->second->nodes;
  cudaError_t error = put(lock, stream, {count_graph}, false);
  for (const std::size_t i : order_of(*nodes, random_())) {
    const Node& node = (*nodes)[i];
    if (error != cudaSuccess) return error;
    error = node.event ? put_record(lock, stream, *node.event) : put(lock, stream, node.operation, false);
  }
  return error;
}

cudaError_t Scheduler::destroy(cudaGraph_t graph) {
  const Lock lock(mutex_);
  return graphs_.erase(graph) == 1 ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t Scheduler::destroy(cudaGraphExec_t exec) {
  const Lock lock(mutex_);
  return execs_.erase(exec) == 1 ? cudaSuccess : cudaErrorInvalidValue;
}

Alive Scheduler::alive() {
  const Lock lock(mutex_);
  Alive alive;
  alive.streams = streams_.size();
  alive.events = events_.size();
  alive.graphs = graphs_.size() + execs_.size();
  return alive;
}

// ---- Queues ----

Scheduler::StreamPtr Scheduler::find(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return legacy(current_device());
  const auto found = streams_.find(handle);
  return found == streams_.end() ? nullptr : found->second;
}

Scheduler::EventPtr Scheduler::find(cudaEvent_t handle) {
  const auto found = events_.find(handle);
  return found == events_.end() ? nullptr : found->second;
}

const Scheduler::StreamPtr& Scheduler::legacy(int device) {
  while (static_cast<int>(legacy_.size()) <= device) {
    legacy_.push_back(std::make_shared<CUstream_st>());
    legacy_.back()->device = static_cast<int>(legacy_.size()) - 1;
  }
  return legacy_[static_cast<std::size_t>(device)];
}

cudaError_t Scheduler::put(Lock& lock, const StreamPtr& stream, Operation operation, bool blocks) {
  if (broken() != cudaSuccess) return broken();
  if (stream->capture) return capture(*stream, std::move(operation));
  if (stream == legacy(stream->device)) {
    for (const auto& weak : captures_) {
      const auto capture = weak.lock();
      if (!capture || capture->ended || capture->mode == cudaStreamCaptureModeRelaxed) continue;
      for (const StreamPtr& other : capture->streams) {
        if (!other->blocking || other->device != stream->device) continue;
        capture->invalid = true;
        return cudaErrorStreamCaptureImplicit;
      }
    }
  }
  order_with_legacy(stream, operation);
  to_ask_ += operation.ask != nullptr;
  if (stream->operations.empty()) busy_.push_back(stream);
  stream->operations.push_back(std::move(operation));
  const Point point = {stream, ++stream->enqueued};
  if (blocks) return meet(lock, {point});
  if (settings.streams == Policy::kRandom && random(4) == 0) {
    const StreamPtr some = busy_[random(busy_.size())];
    return meet(lock, {{some, some->enqueued - random(some->operations.size())}}, false);
  }
  if (to_ask_ > 0) wake_device();
  return cudaSuccess;
}

void Scheduler::order_with_legacy(const StreamPtr& stream, Operation& operation) {
  const StreamPtr& legacy_stream = legacy(stream->device);
  if (stream == legacy_stream) {
    for (const StreamPtr& other : busy_) {
      if (other->blocking && other != stream && other->device == stream->device) {
        operation.after.push_back({other, other->enqueued});
      }
    }
  } else if (stream->blocking && legacy_stream->done < legacy_stream->enqueued) {
    operation.after.push_back({legacy_stream, legacy_stream->enqueued});
  }
}

// Has the devices' thread do what `points` need, or so much of it.
cudaError_t Scheduler::meet(Lock& lock, std::vector<Point> points, bool waits, int most_operations) {
  if (unmet(points) && broken() == cudaSuccess) {
    Demand demand{std::move(points), waits, most_operations};
    demands_.push_back(&demand);
    wake_device();
    met_.wait(lock, [&] { return demand.met; });
  }
  return broken();
}

cudaError_t Scheduler::query(Lock& lock, const Point& point) {
  if (is_done(point)) return broken();
  const cudaError_t error = meet(lock, {point}, false, 1);
  return error != cudaSuccess ? error : cudaErrorNotReady;
}

void Scheduler::wake_device() {
  if (!started_) {
    started_ = true;
    std::thread([this] { live(); }).detach();
  }
  work_.notify_one();
}

// ---- The devices' thread ----

void Scheduler::live() {
  pthread_setname_np(pthread_self(), "cuda_on_cpu");
  Lock lock(mutex_);
  for (microseconds ask_again = kAskAgain;;) {
    ++round_;
    const bool served = serve_demands(lock);
    const bool asked = ask_begun(lock);
    if (served || asked) {
      ask_again = kAskAgain;
    } else if (std::any_of(busy_.begin(), busy_.end(), [](const StreamPtr& s) { return s->begun; })) {
      work_.wait_for(lock, ask_again);
      ask_again = std::min(2 * ask_again, kAskAgainAtMost);
    } else if (!demands_.empty()) {  // a new one
    } else if (to_ask_ == 0) {
      work_.wait(lock);
    } else if (work_.wait_for(lock, kPatience) == std::cv_status::timeout && demands_.empty()) {
      begin_unasked(lock);
    }
  }
}

// Returns whether it got anywhere.
bool Scheduler::serve_demands(Lock& lock) {
  bool served = false;
  for (std::size_t i = 0; i < demands_.size();) {  // more come meanwhile, behind it
    Demand& demand = *demands_[i];
    served |= carry_out(lock, demand.points, demand.most_operations);
    if (demand.waits && unmet(demand.points)) {
      ++i;
      continue;
    }
    demands_.erase(demands_.begin() + static_cast<std::ptrdiff_t>(i));
    demand.met = served = true;
    met_.notify_all();
  }
  return served;
}

// Carries out operations until all of `points` are done, so many operations are, or the rest waits for
// another process. Returns whether anything was done.
bool Scheduler::carry_out(Lock& lock, const std::vector<Point>& points, int most_operations) {
  std::optional<DeviceMemoryOpen> open;  // once for all of them: it is a system call
  bool done = false;
  const Point* wanted = nullptr;
  for (int count = 0; count != most_operations && (wanted = unmet(points)); ++count) {
    const StreamPtr stream = pick(*wanted);
    if (!stream) break;
    if (stream->operations.front().run && !open) open.emplace();
    done |= do_first(lock, *stream) != Progress::kNone;
    if (stream->operations.empty()) std::erase(busy_, stream);
    if (broken() != cudaSuccess) drop_all();
  }
  return done;
}

// REQUIRES: the stream's first operation can begin.
Progress Scheduler::do_first(Lock& lock, CUstream_st& stream) {
  Operation& operation = stream.operations.front();  // a deque: stays in place while more is enqueued
  if (operation.ask) {
    stream.begun = true;
    stream.asked = round_;
  }
  if (operation.run || operation.ask) {
    lock.unlock();
    const Progress progress = operation.ask ? operation.ask() : (operation.run(), Progress::kDone);
    lock.lock();
    if (progress != Progress::kDone) return progress;
  }
  to_ask_ -= operation.ask != nullptr;
  stream.operations.pop_front();
  stream.begun = false;
  ++stream.done;
  return Progress::kDone;
}

// A stream whose first operation can begin; none if the rest waits for another process.
Scheduler::StreamPtr Scheduler::pick(Point wanted) {
  if (settings.streams == Policy::kRandom) {
    std::vector<StreamPtr> choices;
    for (const StreamPtr& stream : busy_) {
      if (can_begin(*stream)) choices.push_back(stream);
    }
    if (!choices.empty()) return choices[random(choices.size())];
  }
  // The awaited work was enqueued before the wait, so this loop ends.
  while (const Point* const before = unmet(wanted.stream->operations.front().after)) wanted = Point(*before);
  return can_begin(*wanted.stream) ? wanted.stream : nullptr;
}

bool Scheduler::can_begin(const CUstream_st& stream) const {
  const Operation& first = stream.operations.front();
  return !unmet(first.after) && (!first.ask || stream.asked != round_);
}

// Operations that began wait for nobody here. Returns whether one got anywhere.
bool Scheduler::ask_begun(Lock& lock) {
  bool done = false;
  const std::vector<StreamPtr> busy = busy_;
  for (const StreamPtr& stream : busy) {
    if (!stream->begun || !can_begin(*stream)) continue;
    done |= do_first(lock, *stream) != Progress::kNone;
    if (stream->operations.empty()) std::erase(busy_, stream);
    if (broken() != cudaSuccess) drop_all();
  }
  return done;
}

// Carries out operations that have no waiter here but that others may wait for.
void Scheduler::begin_unasked(Lock& lock) {
  std::vector<Point> points;
  for (const StreamPtr& stream : busy_) {
    std::uint64_t position = stream->done;
    for (const Operation& operation : stream->operations) {
      ++position;
      if (operation.ask) {
        points.push_back({stream, position});
        break;
      }
    }
  }
  ++round_;
  for (const Point& point : points) carry_out(lock, {point}, -1);
}

void Scheduler::drop_all() {
  for (const StreamPtr& stream : busy_) {
    stream->operations.clear();
    stream->begun = false;
    stream->done = stream->enqueued;
  }
  busy_.clear();
  to_ask_ = 0;
}

std::uint64_t Scheduler::random(std::uint64_t below) {
  if (seed_ != settings.seed) random_.seed(seed_ = settings.seed);
  return random_() % below;
}

Scheduler& scheduler() {
  static Scheduler& scheduler = *new Scheduler;
  return scheduler;
}

}  // namespace cuda_on_cpu
