// The coordinator and the store behind one gRPC port: drives the pure state machine of state.h with real
// streams and timers. Runs on gRPC's threads and one that waits for deadlines; thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/core/status.h"
#include "proto/core/times.h"
#include "rendezvous/identity/job_key.h"
#include "rendezvous/server/run_view.h"
#include "rendezvous/wire/peers.h"

namespace dtrun::rendezvous {

struct CandidateOptions {
  election::Settings settings;
  std::string list;  // of the hosts, as text: a host with another one is refused
  MakePeers peers;
};

struct ServerOptions {
  // Numeric, or "localhost"; "0.0.0.0" or "::" for all, IPv6 too; or "unix:PATH", in a folder that only this
  // user may enter.
  std::string bind_address;
  int port = 0;           // 0: any free one
  bool separate = false;  // a `dtrun store`: any number of runs side by side, and no agent hosts it
  std::string host = {};  // the member id of the agent in whose process this is
  // With a key, a peer without it fails in the handshake, and nothing is sent in the clear. Without one any
  // process that can connect may join. A Unix socket needs no key.
  std::optional<JobKey> key = {};
  // Limit of open files for connections that have not shown the key yet, at least 5; nothing: a quarter of
  // this process' limit, at most 512.
  std::optional<std::size_t> unauthenticated_files = {};
  Times times = {};
  std::function<void(const std::string&)> notice = {};  // lines for people; one call at a time
  // Called, on any thread, when this host becomes the coordinator after another one was, or could have been.
  std::function<void()> leads = {};
  // Called, on a thread of its own and seldom, with an address whose handshakes fail: it has another key, or
  // none.
  std::function<void(const std::string& address)> turned_away = {};
  // Set if several hosts may be the coordinator, one at a time. Nothing: it is always this one.
  std::optional<CandidateOptions> candidate = {};
};

class Server {
 public:
  // Fails with EX_UNAVAILABLE if the port cannot be bound (it never shares a port with another process).
  // The settings of the run (node counts, timeouts, restarts) come with the first member's Join.
  static Result<std::unique_ptr<Server>> start(const ServerOptions& options);

  // Breaks every stream. To let the members leave by themselves, watch members() first.
  virtual ~Server() = default;

  virtual int port() const = 0;

  // Members connected now. The hosting agent goes last: it ends when only itself is left.
  virtual int members() const = 0;

  // Calls that wait for the end of a run, or whose answer is still being written. The hosting agent waits for
  // these too: no other process could answer them.
  virtual int waiters() const = 0;

  // True if this host is the coordinator now.
  virtual bool leads() const = 0;

  // For people who look on; any thread, which waits for the coordinator's. `run_id` is as in StatusRequest.
  virtual std::vector<RunView> look(const std::string& run_id, const HistoryMark& mark) = 0;
  // From now on the status of each run says where its page is.
  virtual void set_page(PageAddress page) = 0;
};

}  // namespace dtrun::rendezvous
