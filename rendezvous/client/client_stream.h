// One Join stream from the agent's side, from the first attempt to its end. Reconnecting is client.cc's.
#pragma once

#include <grpcpp/channel.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "proto/rendezvous.grpc.pb.h"

namespace dtrun::rendezvous {

// The stream's calls to its owner, on gRPC's threads, one call at a time: connected at most once, then
// messages.
struct StreamSink {
  std::function<void()> connected;  // a coordinator answered
  std::function<void(v1::FromCoordinator)> received;
};

class ClientStream final : public grpc::ClientBidiReactor<v1::FromAgent, v1::FromCoordinator> {
 public:
  explicit ClientStream(StreamSink sink) : sink_(std::move(sink)) {}

  // Once, on an object that a shared_ptr owns: it keeps itself alive until the stream is done.
  void start(const std::shared_ptr<grpc::Channel>& channel, std::shared_ptr<ClientStream> self);

  // Any thread, also before start. Dropped once the stream has ended or is half-closed.
  void send(const v1::FromAgent& message);
  void half_close();  // after all queued messages
  void cancel();

  // True if it happened before the deadline.
  bool wait_until_answered(std::chrono::steady_clock::time_point deadline);  // connected, or done
  bool wait_until_done(std::chrono::steady_clock::time_point deadline);
  void wait_until_done();

  bool was_connected() const;
  grpc::Status status() const;  // REQUIRES: done

 private:
  void OnReadInitialMetadataDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;
  void pump();  // REQUIRES: mutex_ held

  const StreamSink sink_;
  grpc::ClientContext context_;
  v1::FromCoordinator incoming_;
  std::shared_ptr<ClientStream> self_;  // until OnDone

  mutable std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::deque<v1::FromAgent> outbox_;  // the front is being written if writing_
  bool started_ = false;
  bool writing_ = false;
  bool half_closing_ = false;
  bool half_closed_ = false;
  bool ended_ = false;  // no more operations may start
  bool connected_ = false;
  bool done_ = false;
  grpc::Status status_;
};

}  // namespace dtrun::rendezvous
