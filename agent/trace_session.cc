#include "agent/trace_session.h"

#include <algorithm>
#include <utility>

#include "agent/process/host_memory.h"
#include "proto/base/clock.h"
#include "rendezvous/wire/intake.h"
#include "rendezvous/wire/trace.h"

namespace dtrun::agent {
namespace {

namespace v1 = rendezvous::v1;

constexpr std::size_t kMostAtOnce = 1000;  // operations of a worker: 10 to 25 KB
// A part as the coordinator takes it has room for one worker's more.
constexpr std::size_t kFull = rendezvous::kMostOfMessage - (std::size_t{40} << 10);
// Of workers that ended, as nobody asks; some generations'.
constexpr std::size_t kMostKept = 256;

}  // namespace

bool TraceSession::begin(const std::string& trace) {
  if (!trace_.empty() && trace_ != trace) return false;
  trace_ = trace;
  return true;
}

TraceSession::Reader& TraceSession::reader_of(const WorkerProcess& worker) {
  Reader& reader = readers_[worker.pid()];
  if (reader.memory == nullptr && worker.trace_memory() != nullptr) {
    reader.memory = worker.trace_memory();
    reader.file = worker.memory_file();
    reader.memory->traced.store(1, std::memory_order_relaxed);
  }
  return reader;
}

v1::WorkerTrace TraceSession::read(const WorkerProcess& worker, Reader& reader) const {
  WorkerTrace trace;
  trace.set_rank(worker.rank());
  trace.set_local_rank(worker.local_rank());
  trace.set_pid(worker.pid());
  if (reader.memory == nullptr) return trace;
  const TraceRing::Newer newer = reader.memory->trace.read_after(reader.last, kMostAtOnce);
  reader.last = newer.last;
  rendezvous::to_wire(newer.operations, &trace);
  trace.set_lost(newer.lost);
  trace.set_more(newer.more);
  return trace;
}

void TraceSession::part_with(const WorkerProcess& worker) {
  const auto known = readers_.find(worker.pid());
  if (trace_.empty() || known == readers_.end()) return;
  for (bool more = true; more && kept_.size() < kMostKept; more = kept_.back().more())
    kept_.push_back(read(worker, known->second));
  // One that was killed stood somewhere.
  std::vector<Operation> waits = worker.operations();
  std::erase_if(waits, [](const Operation& one) { return one.state != Operation::State::kWaits; });
  if (!waits.empty() && kept_.size() < kMostKept) {
    WorkerTrace last;
    last.set_rank(worker.rank());
    last.set_local_rank(worker.local_rank());
    last.set_pid(worker.pid());
    rendezvous::to_wire(waits, &last);
    kept_.push_back(std::move(last));
  }
}

v1::TracePart TraceSession::answer(const v1::TraceOrder& order, const std::vector<WorkerProcess*>& workers) {
  v1::TracePart part;
  part.set_trace(order.trace());
  part.set_sent_at(order.sent_at());
  if (!begin(order.trace())) {
    part.set_refusal("another dtrun trace of this run is under way");
    part.set_answered_at(steady_nanoseconds());
    return part;
  }
  for (; !kept_.empty() && part.ByteSizeLong() < kFull; kept_.pop_front())
    *part.add_workers() = std::move(kept_.front());
  for (WorkerProcess* worker : workers) {
    if (worker->pid() <= 0) continue;
    Reader& reader = reader_of(*worker);
    if (part.ByteSizeLong() < kFull) *part.add_workers() = read(*worker, reader);
  }
  std::erase_if(readers_, [&](const auto& known) {
    return std::ranges::none_of(workers, [&](WorkerProcess* one) { return one->pid() == known.first; });
  });
  part.set_answered_at(steady_nanoseconds());
  order.end() ? end() : timer_.set(Loop::Clock::now() + kForgotten, [this] { end(); });
  return part;
}

// Workers that read the word a moment ago may write once more, into pages that come back for it.
void TraceSession::end() {
  timer_.cancel();
  for (const auto& [pid, reader] : readers_) {
    if (reader.memory == nullptr) continue;
    reader.memory->traced.store(0, std::memory_order_relaxed);
    (void)clear_memory(reader.file, offsetof(OperationMemory, trace), sizeof(TraceRing));
  }
  readers_.clear();
  kept_.clear();
  trace_.clear();
}

}  // namespace dtrun::agent
