// How the hosts that may lead reach each other: an interface, since the coordinator's side
// (server/candidate.h) speaks through connections that the other side makes (client/peer_links.h).
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "rendezvous/core/election/election.h"

namespace dtrun::rendezvous {

class Peers {
 public:
  // Called on threads of its own, one call at a time for each host.
  using Answered = std::function<void(int from, election::VoteReply)>;

  virtual ~Peers() = default;  // no call of Answered after it returns

  // Never waits. An earlier ask to that host that has not been sent yet is dropped: it is stale.
  virtual void ask(int to, const election::VoteRequest& ask) = 0;
  // Waits until queued asks are on their way, at most `limit`.
  virtual void flush(std::chrono::milliseconds limit) = 0;
};

using MakePeers = std::function<std::unique_ptr<Peers>(Peers::Answered)>;

}  // namespace dtrun::rendezvous
