// Measures the path to another node: a listener on each, and links from every node to every other.
//
// A link is a TCP connection. Its listener greets with a nonce, since many hosts have an address 172.17.0.1
// and a connection to it ends at the host itself. Then, as often as the link wants: two numbers (Ask), so
// many bytes, and back come an Answer and as many bytes as were asked for.
#pragma once

#include <string>

#include "cmd/doctor/core/facts.h"
#include "proto/base/descriptor.h"
#include "proto/core/status.h"

namespace dtrun::doctor {

// Answers on a free port of all addresses until the process ends: a thread accepts, and one more serves each
// link.
class PeerListener {
 public:
  static Result<PeerListener> open();
  int port() const { return port_; }
  const std::string& nonce() const { return nonce_; }

 private:
  int port_ = 0;
  std::string nonce_;
};

struct Peer {
  std::string address = {};
  int port = 0;
  std::string nonce = {};
};

// For one thread at a time.
class PeerLink {
 public:
  // Connects, measures round trips and sends 64 kB, within some 5 s. The path tells what failed: the way back
  // is the other's own link's.
  static PeerLink open(const Peer& peer);

  const PathFacts& path() const { return path_; }
  // Round trips again.
  void measure_round_trips();
  // Mbit/s to the peer, and from it in `back`. Some 0.2 s each way. Nothing is measured on a path that
  // failed.
  void measure_rates(PathFacts* back);

 private:
  bool connect_to(const Peer& peer);
  bool greeted_by(const Peer& peer);
  void try_large();

  Descriptor socket_;
  PathFacts path_;
};

}  // namespace dtrun::doctor
