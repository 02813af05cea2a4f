// Reaches what listens on an endpoint: resolves the name, connects a socket, opens a channel, and finds out
// why nobody answers. Everything blocks, for a thread of its own, and another thread may interrupt it, except
// the name service: a thread that waits for that one is left to itself.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "proto/core/status.h"
#include "rendezvous/client/endpoint.h"
#include "rendezvous/identity/job_key.h"

namespace dtrun::rendezvous {

// One thread uses it, and any other may interrupt it. That thread shares its ownership.
class Connector {
 public:
  // Without a key the other end has none. A Unix socket asks for none.
  explicit Connector(std::optional<JobKey> key) : key_(std::move(key)) {}

  // As rendezvous::dial(). `wanted` is asked on this thread once interrupt_dial() has an effect: false ends
  // the attempt.
  Dialled dial(
      const std::string& host, int port, std::chrono::milliseconds timeout,
      const std::function<bool()>& wanted = [] { return true; });
  // As open_channel().
  std::shared_ptr<grpc::Channel> open(const std::string& host, const Dialled& dialled, int port,
                                      const grpc::ChannelArguments& arguments = {}) const;
  // As rendezvous::compare_keys() and probe(), of an endpoint whose channel does not answer.
  Status compare_keys(const std::string& host, int port, std::chrono::milliseconds timeout) const;
  ProbeAnswer probe(const std::string& host, int port, std::chrono::milliseconds timeout) const;

  // Ends the attempt to dial that goes on. Any thread.
  void interrupt_dial();
  // Ends what goes on, and all that comes. Any thread.
  void interrupt();

  // Joins the thread that uses the connector, or leaves it to itself if it waits for the name service: false.
  // Another thread. REQUIRES: interrupt() was called.
  bool let_go(std::thread& thread) const;

 private:
  const std::optional<JobKey>& key_for(const std::string& host) const;

  const std::optional<JobKey> key_;
  Interrupt interrupt_;
  std::atomic<bool> interrupted_{false};
  std::atomic<bool> resolving_{false};
  std::mutex mutex_;                     // guards the next
  std::shared_ptr<Interrupt> dialling_;  // null: no attempt goes on
};

}  // namespace dtrun::rendezvous
