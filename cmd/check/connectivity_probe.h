// Finds where other hosts reach this one, and whether it gets to them: asked before anything starts, since a
// dead interface, a filter or a wrong address would show only later, as silence.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "cmd/check/core/probe_result.h"
#include "proto/base/descriptor.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

// A free port on all addresses of this host, held until the object goes. It sends `nonce` to each that
// connects: many hosts have an address 172.17.0.1, and a connection to it ends at the host itself.
class ProbeListener {
 public:
  // The port is one that no outgoing connection takes by chance. EX_UNAVAILABLE if there is none.
  static Result<ProbeListener> open();

  int fd() const { return socket_.get(); }  // readable when a host connects
  int port() const { return port_; }
  const std::string& nonce() const { return nonce_; }

  // Sends the nonce to one waiting connection, which does not block; not open: none waits.
  Descriptor greet();

 private:
  Descriptor socket_;
  int port_ = 0;
  std::string nonce_;
};

// Another host's place.
struct ProbeTarget {
  std::vector<std::string> addresses = {};
  int port = 0;
  std::string nonce = {};
};

// Tries all addresses of all places at once, and for a better address waits no longer than a second after one
// was reached. Greets connections to `own` (may be null) meanwhile, since others may look for it. In the
// places' order. `connections`, if not null: those to the addresses that were reached, which do not block.
std::vector<ProbeResult> probe_all(const std::vector<ProbeTarget>& places, std::chrono::milliseconds timeout,
                                   ProbeListener* own = nullptr,
                                   std::vector<Descriptor>* connections = nullptr);

}  // namespace dtrun::cmd
