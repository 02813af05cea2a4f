// The door in front of a gRPC server with a key: listens and accepts, lets unauthenticated peers wait
// outside, and hands each connection over when its turn comes (core/admission/accept_queue.h), with no byte
// read. gRPC itself accepts any connection, spends a hundred kilobytes on each, and ends the process when no
// descriptor is left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "proto/core/millis.h"
#include "rendezvous/core/admission/accept_queue.h"
#include "rendezvous/core/admission/refused.h"

namespace dtrun::rendezvous {

class Gate {
 public:
  // Takes a connected socket, which is then its own. Called on the gate's thread.
  using HandOver = std::function<void(int fd)>;
  // ServerOptions::turned_away; called on the gate's thread.
  using TurnedAway = std::function<void(const std::string& address)>;

  // Listens on the TCP address; it and `files` are as in ServerOptions. Null, and errno, if it cannot.
  // Accepts nothing before start().
  static std::unique_ptr<Gate> open(const std::string& address, int port, std::optional<std::size_t> files,
                                    const Times& times, TurnedAway turned_away = {});
  ~Gate();
  Gate(const Gate&) = delete;

  void start(HandOver hand_over);
  // Ends the thread: no call of HandOver after it returns; waiting connections are closed.
  void close();
  int port() const { return port_; }
  // The peer, named as by grpc::ServerContext::peer(), made a call: it has shown a certificate of the key.
  // Any thread.
  void came_in(const std::string& peer);

 private:
  struct AcceptedSocket {
    int fd = -1;  // once handed over: a second descriptor of it, which shows its end
    std::string peer;
  };

  Gate(std::vector<int> listeners, const AcceptQueue::Limits& limits, TurnedAway turned_away);
  void run();
  bool take_callers();
  void take_turn();
  void accept_some(int listener);
  void accept_again();
  void pause_accepting(Millis time);
  void note_refused(const std::string& peer);
  void look_at(std::uint64_t id, std::uint32_t events);
  void hand_over(std::uint64_t id);
  void hang_up_on(std::uint64_t id);
  void let_go(std::uint64_t id);
  void watch(int fd, std::uint64_t mark, std::uint32_t events) const;

  std::vector<int> listeners_;
  const int port_, epoll_, wake_;
  HandOver hand_over_;
  std::thread thread_;

  std::mutex mutex_;  // guards the next two
  std::vector<std::string> came_in_;
  bool ending_ = false;

  // The thread's.
  AcceptQueue queue_;
  std::map<std::uint64_t, AcceptedSocket> connections_;
  std::map<std::string, std::uint64_t> handed_over_;  // by the peer's name
  const TurnedAway turned_away_;
  Refused refused_;
  std::uint64_t next_id_;
  Millis accept_at_ = kNever;  // when to go on, after a pause
};

}  // namespace dtrun::rendezvous
