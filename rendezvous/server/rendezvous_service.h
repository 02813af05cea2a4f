// The Rendezvous service: one reactor per Join stream. It hands the messages that it reads to the
// coordinator, on the strand, and writes those that the coordinator sends. Decides nothing.
#pragma once

#include <atomic>

#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/server/coordinator.h"
#include "rendezvous/server/strand.h"

namespace dtrun::rendezvous {

class RendezvousService final : public v1::Rendezvous::CallbackService {
 public:
  // Both must outlive every stream, that is, the server's shutdown.
  RendezvousService(Coordinator& coordinator, Strand& strand) : coordinator_(coordinator), strand_(strand) {}

  grpc::ServerBidiReactor<v1::FromAgent, v1::FromCoordinator>* Join(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context, const v1::StatusRequest* request,
                                   v1::StatusReply* reply) override;

  grpc::ServerUnaryReactor* Trace(grpc::CallbackServerContext* context, const v1::TraceRequest* request,
                                  v1::TraceReply* reply) override;

  // Calls that wait for the end of a run, or whose answer is still on its way. Any thread.
  int waiters() const { return waiters_.load(); }

 private:
  Coordinator& coordinator_;
  Strand& strand_;
  std::atomic<ConnectionId> next_id_{1};
  std::atomic<int> waiters_{0};
};

}  // namespace dtrun::rendezvous
