// The agent's side of the rendezvous: the client, the coordinator when this node hosts it, and the mailbox
// through which gRPC's threads reach the loop.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "agent/descriptor.h"
#include "agent/job_spec.h"
#include "agent/loop.h"
#include "proto/status.h"
#include "rendezvous/client.h"
#include "rendezvous/server.h"

namespace dtrun::agent {

class Link {
 public:
  using Sink = std::function<void(rendezvous::ClientEvent)>;

  // `sink` is called on the loop. Fails if a standalone coordinator cannot be started.
  static Result<std::unique_ptr<Link>> start(const RendezvousSpec& spec, Loop& loop, Sink sink);
  ~Link();
  Link(const Link&) = delete;

  rendezvous::Client& client() { return *client_; }
  const std::string& endpoint() const { return endpoint_; }  // "host:port"
  bool hosting() const { return server_ != nullptr; }
  // Members connected to the coordinator hosted here, this agent included.
  int members() const { return server_ ? server_->members() : 0; }

 private:
  Link(Loop& loop, Sink sink);

  Status host(const RendezvousSpec& spec);
  void post(rendezvous::ClientEvent event);
  void deliver();

  Loop& loop_;
  Sink sink_;
  std::string endpoint_;
  Descriptor wake_;  // eventfd

  std::mutex mailbox_mutex_;
  std::deque<rendezvous::ClientEvent> mailbox_;  // guarded by mailbox_mutex_

  std::unique_ptr<rendezvous::Server> server_;
  std::unique_ptr<rendezvous::Client> client_;  // goes before the mailbox and the server
};

}  // namespace dtrun::agent
