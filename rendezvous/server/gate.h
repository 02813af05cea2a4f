// The door in front of a gRPC server with a key: listens and accepts, lets unauthenticated peers wait
// outside, and hands each connection over when its turn comes (core/accept_queue.h), with no byte read. gRPC
// itself accepts any connection, spends a hundred kilobytes on each, and ends the process when no descriptor
// is left.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace dtrun::rendezvous {

class Gate {
 public:
  // Takes a connected socket, which is then its own. Called on the gate's thread.
  using HandOver = std::function<void(int fd)>;

  // True if the host name in a hello is one that only members know. Called on the gate's thread.
  using IsMember = std::function<bool(const std::string& name)>;
  // ServerOptions::turned_away; called on the gate's thread.
  using TurnedAway = std::function<void(const std::string& address)>;

  // Listens on the TCP address; it and `files` are as in ServerOptions. Null, and errno, if it cannot.
  // Accepts nothing before start().
  static std::unique_ptr<Gate> open(const std::string& address, int port, std::optional<std::size_t> files,
                                    IsMember is_member, TurnedAway turned_away = {});
  virtual ~Gate() = default;

  virtual void start(HandOver hand_over) = 0;
  // Ends the thread: no call of HandOver after it returns; waiting connections are closed.
  virtual void close() = 0;
  virtual int port() const = 0;
  // The peer, named as by grpc::ServerContext::peer(), made a call: it has shown a certificate of the key.
  // Any thread.
  virtual void came_in(const std::string& peer) = 0;
};

}  // namespace dtrun::rendezvous
