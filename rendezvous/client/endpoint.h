// Connects to "host:port" or "unix:PATH", and finds out what listens on an endpoint that does not answer as a
// coordinator would. Blocking, with deadlines, interruptible; without gRPC.
#pragma once

#include <netdb.h>

#include <chrono>
#include <memory>
#include <string>

namespace dtrun::rendezvous {

// Ends blocking calls whose result is not wanted any more.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  void raise();                   // for good; any thread
  int fd() const { return fd_; }  // readable once raised

 private:
  int fd_;
};

// A host's TCP addresses in the order to try them.
struct Addresses {
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list{nullptr, freeaddrinfo};  // null: none
  std::string error;                                                               // why there is none
};
// May wait for the name service. localhost is known on every machine (RFC 6761, section 6.3), also on one
// without /etc/hosts.
Addresses look_up(const std::string& host, int port);

struct Dialled {
  int fd = -1;                // connected, non-blocking, close-on-exec; -1: not connected
  std::string local_address;  // numeric; of a Unix socket that of loopback
  std::string peer_address;   // numeric, of the host's addresses; of a Unix socket "unix:PATH"
  std::string error;          // what went wrong
  bool unresolved = false;    // the name is unknown
  bool refused = false;       // not connected: a host answers that nobody listens there
};

// Resolves the host and connects to the first of its addresses that accepts, within `timeout` of its
// resolution. The listener on a Unix socket must belong to this user or root.
Dialled dial(const std::string& host, int port, std::chrono::milliseconds timeout,
             const Interrupt& interrupt);

// The kind of listener on an endpoint, known by its answer to the preface of an HTTP/2 client.
enum class ProbeAnswer {
  kHttp2,   // a SETTINGS frame: a gRPC server, or something close to it
  kOther,   // anything else
  kSilent,  // nothing within the time, which begins when it has accepted
  kGone,    // nothing accepts, or it hangs up at once: a coordinator may be just ending or starting
};
ProbeAnswer probe(const std::string& host, int port, std::chrono::milliseconds timeout,
                  const Interrupt& interrupt);

}  // namespace dtrun::rendezvous
