// One connection to another host that may lead, for calls one after the other, from one thread. Dials where
// there is none, and anew after a call that failed: a connection that lost packets may need seconds to find
// out that the way is free again.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "proto/core/status.h"
#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/client/endpoint.h"
#include "rendezvous/identity/credential.h"

namespace dtrun::rendezvous {

class Caller {
 public:
  Caller(std::string host, int port, std::optional<Credential> key)
      : host_(std::move(host)), port_(port), key_(std::move(key)) {}

  // A failure has EX_UNAVAILABLE, or EX_NOPERM of a key, and names the host. `limit`: for dialling, and again
  // for the call.
  template <typename Method, typename Request, typename Reply>
  Status call(Method method, const Request& request, Reply* reply, std::chrono::milliseconds limit) {
    if (Status dialled = connect(limit); !dialled.ok()) return dialled;
    grpc::ClientContext context;
    if (!enter(&context)) return Status(kExitUnavailable, "interrupted");
    context.set_deadline(std::chrono::system_clock::now() + limit);
    return leave((stub_.get()->*method)(&context, request, reply), limit);
  }

  // Ends the call under way, and those to come. Any thread.
  void interrupt();
  // Perhaps in the name service, which cannot be interrupted. Any thread.
  bool resolving() const { return resolving_.load(); }

 private:
  Status connect(std::chrono::milliseconds limit);
  bool enter(grpc::ClientContext* context);
  Status leave(const grpc::Status& status, std::chrono::milliseconds limit);

  const std::string host_;
  const int port_;
  const std::optional<Credential> key_;
  Interrupt interrupt_;
  std::atomic<bool> resolving_{false};
  std::unique_ptr<v1::Succession::Stub> stub_;  // null: not connected

  std::mutex mutex_;  // guards the rest
  bool interrupted_ = false;
  grpc::ClientContext* context_ = nullptr;  // of the call under way
};

}  // namespace dtrun::rendezvous
