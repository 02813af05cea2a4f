// Answers to `dtrun trace` as a coordinator gives them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/core/operation.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/wire/trace.h"

namespace dtrun::cmd {

struct OfRank {
  int rank = 0;
  std::vector<Operation> operations = {};
  int pid = 100;
  std::int64_t lost = 0;
};

// Node `number`, "nodeN", whose clock shows `ahead` ns more than the coordinator's, and whose answer took 2
// µs.
inline void add_node(rendezvous::v1::TraceReply& reply, std::uint64_t number, std::int64_t ahead,
                     const std::vector<OfRank>& ranks) {
  rendezvous::v1::NodeTrace* const node = reply.add_nodes();
  node->set_node(number);
  node->set_host("node" + std::to_string(number));
  node->mutable_part()->set_sent_at(1'000'000);
  node->mutable_part()->set_answered_at(1'001'000 + ahead);
  node->set_received_at(1'002'000);
  for (const OfRank& one : ranks) {
    rendezvous::v1::WorkerTrace* const worker = node->mutable_part()->add_workers();
    worker->set_rank(one.rank);
    worker->set_pid(one.pid);
    worker->set_lost(one.lost);
    rendezvous::to_wire(one.operations, worker);
  }
}

inline Operation done(Operation operation, std::int64_t began, std::int64_t ended) {
  operation.generation = operation.generation > 0 ? operation.generation : 1;
  operation.began = began;
  operation.ended = ended;
  return operation;
}

}  // namespace dtrun::cmd
