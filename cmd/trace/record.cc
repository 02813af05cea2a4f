#include "cmd/trace/record.h"

#include <algorithm>

#include "proto/core/text.h"
#include "rendezvous/wire/trace.h"

namespace dtrun::cmd {

void TraceRecord::add(const rendezvous::v1::TraceReply& reply) {
  world_size_ = std::clamp(reply.world_size(), 0, 1 << 20);
  more_ = false;
  for (const std::string& host : reply.silent()) silent_.insert(host);
  for (const rendezvous::v1::NodeTrace& node : reply.nodes()) {
    const rendezvous::v1::TracePart& part = node.part();
    hosts_[node.node()] = node.host();
    samples_[node.node()].push_back(
        {.sent = part.sent_at(), .answered = part.answered_at(), .received = node.received_at()});
    if (!part.refusal().empty()) refusal_ = node.host() + ": " + part.refusal();
    for (const rendezvous::v1::WorkerTrace& worker : part.workers()) {
      if (worker.rank() < 0) continue;
      more_ = more_ || worker.more();
      if (worker.lost() > 0) lost_[worker.rank()] += worker.lost();
      std::vector<TracedOperation>& told = ranks_[worker.rank()];
      for (const Operation& operation : rendezvous::operations_of(worker))
        told.push_back({.operation = operation, .node = node.node(), .pid = worker.pid()});
    }
  }
}

int TraceRecord::steps_of(int rank) const {
  const auto known = ranks_.find(rank);
  if (known == ranks_.end()) return 0;
  return static_cast<int>(std::ranges::count_if(known->second, [](const TracedOperation& one) {
    return one.operation.kind == Operation::Kind::kStep;
  }));
}

bool TraceRecord::has(int steps) const {
  for (int rank = 0; rank < world_size_; ++rank)
    if (steps_of(rank) < steps) return false;
  return world_size_ > 0;
}

std::vector<std::string> TraceRecord::missing(int steps) const {
  std::vector<std::string> sentences;
  if (world_size_ == 0) sentences.emplace_back("the run had no workers yet");
  for (int rank = 0; rank < world_size_; ++rank)
    if (const int seen = steps_of(rank); seen < steps)
      sentences.push_back("rank " + std::to_string(rank) + " has " +
                          (seen == 0 ? "no whole step" : "only " + counted(seen, "step")));
  for (const auto& [rank, lost] : lost_)
    sentences.push_back("of rank " + std::to_string(rank) + " " + std::to_string(lost) +
                        " operations came faster than they were read, and are lost");
  for (const std::string& host : silent_) sentences.push_back(host + " did not answer for a time");
  return sentences;
}

std::string TraceRecord::host_of(std::uint64_t node) const {
  const auto known = hosts_.find(node);
  return known != hosts_.end() ? known->second : "";
}

std::map<std::uint64_t, ClockOffset> TraceRecord::offsets() const {
  std::map<std::uint64_t, ClockOffset> offsets;
  for (const auto& [node, samples] : samples_)
    if (const auto offset = offset_of(samples)) offsets[node] = *offset;
  return offsets;
}

std::int64_t TraceRecord::clock_error() const {
  std::int64_t worst = 0, second = 0;
  for (const auto& [node, offset] : offsets()) {
    second = std::max(second, std::min(worst, offset.error));
    worst = std::max(worst, offset.error);
  }
  return second > 0 ? worst + second : 0;
}

}  // namespace dtrun::cmd
