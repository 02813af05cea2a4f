#include "tests/cuda_on_cpu/graph.h"

#include <algorithm>
#include <random>
#include <utility>

#include "tests/cuda_on_cpu/scheduler.h"
#include "tests/cuda_on_cpu/settings.h"

namespace cuda_on_cpu {
namespace {

cudaError_t invalidate(Capture& capture, cudaError_t error) {
  capture.invalid = true;
  return error;
}

void join(const std::shared_ptr<CUstream_st>& stream, const std::shared_ptr<Capture>& capture) {
  stream->capture = capture;
  capture->streams.push_back(stream);
}

void add(std::vector<std::size_t>& nodes, const std::vector<std::size_t>& more) {
  for (const std::size_t node : more) {
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
  }
}

// Whether `last` and their predecessors contain all of `wanted`.
bool reach(const Nodes& nodes, const std::vector<std::size_t>& last, const std::vector<std::size_t>& wanted) {
  std::vector<bool> reached(nodes.size());
  std::vector<std::size_t> open = last;
  while (!open.empty()) {
    const std::size_t node = open.back();
    open.pop_back();
    if (reached[node]) continue;
    reached[node] = true;
    open.insert(open.end(), nodes[node].after.begin(), nodes[node].after.end());
  }
  return std::all_of(wanted.begin(), wanted.end(), [&](std::size_t node) { return reached[node]; });
}

}  // namespace

void begin_capture(const std::shared_ptr<CUstream_st>& stream, cudaStreamCaptureMode mode) {
  const auto capture = std::make_shared<Capture>();
  capture->origin = stream.get();
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  join(stream, capture);
}

cudaError_t end_capture(const std::shared_ptr<CUstream_st>& stream, Nodes* nodes) {
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture) return cudaErrorIllegalState;
  if (capture->origin != stream.get()) return invalidate(*capture, cudaErrorStreamCaptureUnmatched);
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
    return invalidate(*capture, cudaErrorStreamCaptureWrongThread);
  }
  bool joined = true;
  for (const auto& other : capture->streams) {
    joined = joined && reach(capture->nodes, stream->last_nodes, other->last_nodes);
  }
  for (const auto& other : std::exchange(capture->streams, {})) {
    other->capture = nullptr;
    other->last_nodes.clear();
  }
  capture->ended = true;
  if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
  if (!joined) return cudaErrorStreamCaptureUnjoined;
  *nodes = std::move(capture->nodes);
  return cudaSuccess;
}

cudaError_t capture(CUstream_st& stream, Operation operation, std::shared_ptr<CUevent_st> event) {
  Capture& capture = *stream.capture;
  if (capture.invalid) return cudaErrorStreamCaptureInvalidated;
  capture.nodes.push_back({std::move(operation), stream.last_nodes, std::move(event)});
  stream.last_nodes = {capture.nodes.size() - 1};
  return cudaSuccess;
}

cudaError_t capture_wait(const std::shared_ptr<CUstream_st>& stream, const CUevent_st& event) {
  if (!event.capture) {  // recorded outside, or never
    return event.point.stream ? invalidate(*stream->capture, cudaErrorStreamCaptureIsolation) : cudaSuccess;
  }
  if (event.capture->ended) return cudaErrorCapturedEvent;
  if (stream->capture && stream->capture != event.capture) {
    return invalidate(*stream->capture, cudaErrorStreamCaptureMerge);
  }
  if (!stream->capture) join(stream, event.capture);
  add(stream->last_nodes, event.nodes);
  return cudaSuccess;
}

std::vector<std::size_t> order_of(const Nodes& nodes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<bool> done(nodes.size());
  std::vector<std::size_t> order;
  while (order.size() < nodes.size()) {
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const auto& after = nodes[i].after;
      if (!done[i] && std::all_of(after.begin(), after.end(), [&](std::size_t node) { return done[node]; })) {
        ready.push_back(i);
      }
    }
    const bool late = settings.streams == Policy::kAsLateAsPossible;
    const std::size_t node = late ? ready.back() : ready[random() % ready.size()];
    order.push_back(node);
    done[node] = true;
  }
  return order;
}

}  // namespace cuda_on_cpu
