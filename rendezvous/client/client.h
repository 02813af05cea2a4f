// An agent's connection to the coordinator and the store. Keeps one Join stream open, reconnects with
// back-off, and diagnoses what is wrong with an endpoint. Results come through one sink, called on gRPC's
// threads: the sink must only hand them to the agent's loop.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "proto/control.pb.h"
#include "proto/core/status.h"
#include "proto/core/times.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/identity/job_key.h"

namespace dtrun::rendezvous {

// A TCP connection stands, but its other end has not answered yet. The Join may be sent now: it is the first
// message that a coordinator expects. Next comes Connected if a coordinator answers, else Disconnected.
struct Opened {
  std::string local_address;  // this host's address on the route to the coordinator, numeric
};
// A coordinator answered. Comes before the first Received.
struct Connected {
  int port = 0;  // of ClientOptions, the one where it is
};
struct Received {
  v1::FromCoordinator message;
};
// The stream is gone or could not be made; the client tries again by itself until closed.
struct Disconnected {
  Status why;  // EX_UNAVAILABLE, or EX_NOPERM of a key; names the endpoint and the finding there
  // No use to try again: the name is unknown for Times::unknown_name, another program is there, or it has
  // another key.
  bool permanent = false;
  int attempt = 0;       // consecutive failures, from 1
  bool silent = false;   // the connection stood, and nothing came over it for keep_alive_timeout
  bool refused = false;  // where the coordinator may be nobody listens, but the hosts answer
};
struct KvDone {
  int worker_serial;  // echoed from kv()
  control::KvReply reply;
};
using ClientEvent = std::variant<Opened, Connected, Received, Disconnected, KvDone>;

struct ClientOptions {
  std::string host;                               // name or numeric address
  std::string endpoint_from = "--rdzv_endpoint";  // where the host stands, for people
  int port = 0;
  // Other ports where the coordinator may be, tried in order: another program, or another run's coordinator,
  // may have taken `port`.
  std::vector<int> more_ports = {};
  // Several hosts that may be the coordinator: the client then ignores `host`, finds out which of them is,
  // and follows.
  std::vector<std::string> hosts = {};
  // The hosts' name for their list; empty: any coordinator that answers there is one of them. With several
  // ports another job's coordinator may answer.
  std::string list = {};
  std::optional<JobKey> key = {};  // without one the server has none
  std::chrono::milliseconds connect_timeout{5000};
  // A coordinator that sends nothing and answers no ping for this long is taken for lost.
  std::chrono::milliseconds keep_alive_timeout{15000};
  Times times = {};
};

class Client {
 public:
  using Sink = std::function<void(ClientEvent)>;

  static std::unique_ptr<Client> start(const ClientOptions& options, Sink sink);
  virtual ~Client() = default;  // no call of the sink after it returns

  // A Join is queued while a connection is open, all else while connected; else it is dropped (the agent
  // joins anew after each Opened).
  virtual void send(const v1::FromAgent& message) = 0;

  // Carries out one store operation under `prefix`; answers with KvDone. Waits for a connection if there is
  // none, and begins again on the next one if it breaks. `worker_serial` is the caller's number of the worker
  // that asks, and means nothing here.
  virtual void kv(int worker_serial, const std::string& prefix, const control::KvRequest& request) = 0;

  // Half-closes the stream after all queued messages and waits until it is flushed, at most `timeout`.
  virtual void close(std::chrono::milliseconds timeout) = 0;
};

}  // namespace dtrun::rendezvous
