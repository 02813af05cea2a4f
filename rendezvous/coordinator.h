// Drives the pure state machine (state.h) with real time and real connections. Lives on one EventThread:
// every member function but members() is called there.
#pragma once

#include <atomic>
#include <map>
#include <memory>

#include "proto/rendezvous.pb.h"
#include "rendezvous/state.h"

namespace dtrun::rendezvous {

// One agent's stream, as the coordinator sees it. Thread-safe; outlives the stream itself.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual void send(v1::FromCoordinator message) = 0;
  virtual void close(bool abort) = 0;  // after what was sent before, or at once
};

class Coordinator {
 public:
  void opened(ConnectionId id, std::shared_ptr<Connection> connection);
  void received(const Event& event);
  void broken(ConnectionId id);

  // Does what is due; returns the next deadline.
  Millis tend();

  int members() const { return members_.load(); }  // any thread

 private:
  void take(const Event& event);

  State state_;
  std::map<ConnectionId, std::shared_ptr<Connection>> connections_;
  std::atomic<int> members_{0};
};

}  // namespace dtrun::rendezvous
