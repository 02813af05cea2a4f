// This node's part of a trace (`dtrun trace`): has its workers write down all that they do, and hands that
// over, order by order, to the coordinator. Lives on the agent's loop; costs nothing before the first order.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/process/worker_process.h"
#include "agent/system/loop.h"
#include "proto/rendezvous.pb.h"

namespace dtrun::agent {

class TraceSession {
 public:
  // A trace whose orders stay away ends by itself after this time: whoever asked for it is gone.
  static constexpr std::chrono::seconds kForgotten{5};

  explicit TraceSession(Loop& loop) : timer_(loop) {}
  ~TraceSession() { end(); }
  TraceSession(const TraceSession&) = delete;

  // `workers`: of this node now.
  rendezvous::v1::TracePart answer(const rendezvous::v1::TraceOrder& order,
                                   const std::vector<WorkerProcess*>& workers);
  // The worker ends, or gets another rank: what it did until now was done as the present one.
  void part_with(const WorkerProcess& worker);

 private:
  using WorkerTrace = rendezvous::v1::WorkerTrace;

  // A worker's memory, from its start on.
  struct Reader {
    std::shared_ptr<OperationMemory> memory;
    std::uint64_t last = 0;  // number of the operation that was read last
    int file = -1;
  };

  bool begin(const std::string& trace);
  Reader& reader_of(const WorkerProcess& worker);
  WorkerTrace read(const WorkerProcess& worker, Reader& reader) const;
  void end();

  std::string trace_;                // empty: none
  std::map<pid_t, Reader> readers_;  // of workers that live
  std::deque<WorkerTrace> kept_;     // of those that were parted with
  Timer timer_;
};

}  // namespace dtrun::agent
