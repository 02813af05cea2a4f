// One connection to another host that may lead, for calls one after the other, from one thread. Dials if
// there is no connection, and anew after a call that failed: a connection that lost packets may need seconds
// to find out that the way is free again.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/core/status.h"
#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/client/connector.h"
#include "rendezvous/identity/job_key.h"

namespace dtrun::rendezvous {

class Caller {
 public:
  // `ports`: where the host may listen, at least one. Another program may have the first ones, so each is
  // tried in turn until one answers, beginning with the one that did.
  Caller(std::string host, std::vector<int> ports, std::optional<JobKey> key)
      : host_(std::move(host)), ports_(std::move(ports)), connector_(std::move(key)) {}

  // A failure has EX_UNAVAILABLE, or EX_NOPERM of a key, and names the host. `limit`: for dialling, and again
  // for the call.
  template <typename Request, typename Reply>
  Status call(grpc::Status (v1::Election::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
              const Request& request, Reply* reply, std::chrono::milliseconds limit) {
    RETURN_IF_ERROR(connect(limit));
    grpc::ClientContext context;
    if (!enter(&context)) return Status(kExitUnavailable, "interrupted");
    context.set_deadline(std::chrono::system_clock::now() + limit);
    return leave((stub_.get()->*method)(&context, request, reply), limit);
  }

  // Ends the call under way, and those to come. Any thread.
  void interrupt();
  // The port where the last call was answered; 0: it was not.
  int answers_at() const { return answers_at_; }
  // The last call found nobody who listens on any port, though the host answers.
  bool is_refused() const { return refused_; }
  // As Connector::let_go(), of the thread that calls. REQUIRES: interrupt() was called.
  void let_go(std::thread& thread) const { (void)connector_.let_go(thread); }

 private:
  Status connect(std::chrono::milliseconds limit);
  int port() const { return ports_[port_]; }
  void try_next_port() { port_ = (port_ + 1) % ports_.size(); }
  bool enter(grpc::ClientContext* context);
  Status leave(const grpc::Status& status, std::chrono::milliseconds limit);

  const std::string host_;
  const std::vector<int> ports_;
  Connector connector_;
  int answers_at_ = 0;
  bool refused_ = false;
  std::size_t port_ = 0;                      // of ports_: the one in use
  std::unique_ptr<v1::Election::Stub> stub_;  // null: not connected

  std::mutex mutex_;  // guards the rest
  bool interrupted_ = false;
  grpc::ClientContext* context_ = nullptr;  // of the call under way
};

}  // namespace dtrun::rendezvous
