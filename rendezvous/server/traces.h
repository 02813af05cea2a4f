// The calls of `dtrun trace` that wait for the answers of a run's nodes. Lives on the coordinator's strand.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "proto/core/millis.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/core/messages.h"

namespace dtrun::rendezvous {

class Traces {
 public:
  using Told = std::function<void(v1::TraceReply)>;
  // A node that is silent for longer is told of as such.
  static constexpr Millis kPatience = 1000;

  // `reply`: what is known without the nodes. `nodes`: their hosts, by connection. The caller orders them,
  // and is answered by `told` once all have answered, or are gone, or kPatience is over.
  void begin(v1::TraceReply reply, std::map<ConnectionId, std::string> nodes, Millis now, Told told);
  // `received_at`: ns of this host's clock.
  void answered(ConnectionId node, v1::TracePart part, std::int64_t received_at);
  void gone(ConnectionId node);
  // Returns the next deadline, kNever without one.
  Millis tend(Millis now);
  void forget_all();

 private:
  struct PendingTrace {
    v1::TraceReply reply;
    std::map<ConnectionId, std::string> awaited;
    Millis until = 0;
    Told told;
  };

  void settle(std::map<std::uint64_t, PendingTrace>::iterator call);

  std::uint64_t next_ = 0;
  std::map<std::uint64_t, PendingTrace> calls_;
};

}  // namespace dtrun::rendezvous
