// The door in front of a gRPC server with a key: listens and accepts, lets strangers wait outside, and hands
// over whose turn it is (core/accept_queue.h) with not a byte taken. gRPC itself accepts whoever comes,
// spends a hundred kilobytes on each, and ends the process when no descriptor is left.
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

  // Whether the host's name that a hello asks for is one that only members know. Called on the gate's thread.
  using IsMember = std::function<bool(const std::string& name)>;
  // As ServerOptions has it; called on the gate's thread.
  using TurnedAway = std::function<void(const std::string& address)>;

  // Listens on the address, a TCP one; it and `files` are as ServerOptions has them. Null, and errno, if it
  // cannot. Nobody is accepted before start().
  static std::unique_ptr<Gate> open(const std::string& address, int port, std::optional<std::size_t> files,
                                    IsMember is_member, TurnedAway turned_away = {});
  virtual ~Gate() = default;

  virtual void start(HandOver hand_over) = 0;
  // Ends the thread: no call of HandOver after it returns, and who still waits is turned away.
  virtual void close() = 0;
  virtual int port() const = 0;
  // The peer, as grpc::ServerContext::peer() has it, made a call: it has shown its certificate, which is a
  // ticket for the run `guest`, or the key's. A guest's connection goes on taking two files here. Any thread,
  // as the next.
  virtual void came_in(const std::string& peer, const std::optional<std::string>& guest) = 0;
  // Ends the connection of a guest.
  virtual void hang_up(const std::string& peer) = 0;
};

}  // namespace dtrun::rendezvous
