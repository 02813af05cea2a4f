// The agent's side of the rendezvous: the client, the coordinator when this node hosts it, and the mailbox
// through which gRPC's threads reach the loop.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/job_spec.h"
#include "agent/process/scratch.h"
#include "agent/system/loop.h"
#include "proto/base/descriptor.h"
#include "proto/core/status.h"
#include "rendezvous/client/client.h"
#include "rendezvous/http/server.h"
#include "rendezvous/server/server.h"

namespace dtrun::agent {

class Link {
 public:
  using Sink = std::function<void(rendezvous::ClientEvent)>;
  using Tell = std::function<void(const std::string& line)>;
  struct Tells {  // people, on the loop
    Tell notice;
    Tell page;  // is called with page_text() once there is one
  };

  // `sink` is called on the loop. Fails if a standalone coordinator cannot be started, whose socket lies in
  // `scratch`. A name is resolved in the background, so that a slow name service does not hold up signals.
  // `unauthenticated_files`: ServerOptions::unauthenticated_files of a coordinator with a key that is hosted
  // here.
  static Result<std::unique_ptr<Link>> start(const RendezvousSpec& spec, const Times& times,
                                             const std::string& run_id, const std::string& member_id,
                                             std::size_t unauthenticated_files, Scratch& scratch, Loop& loop,
                                             Sink sink, Tells tells);
  ~Link();
  Link(const Link&) = delete;

  void send(const rendezvous::v1::FromAgent& message);
  // A store request of the worker with this serial number; the answer (rendezvous::KvDone) has the number
  // too.
  void kv(int worker_serial, const std::string& prefix, const control::KvRequest& request);
  void close(std::chrono::milliseconds timeout);

  std::string endpoint() const;  // "host:port", "host,host:port", or "unix:PATH" if standalone
  // The same in parts; "unix:PATH" has no port.
  const std::string& host() const { return host_; }
  int port() const { return port_; }
  bool hosting() const { return server_ != nullptr && server_->leads(); }
  // Members connected to the coordinator hosted here, this agent included, and calls that wait for the end of
  // the run.
  int members() const { return server_ ? server_->members() + server_->waiters() : 0; }

 private:
  using Job = std::function<void()>;

  // Jobs that other threads give to the loop. Shared with these threads: one may outlive the link.
  struct Mailbox {
    Descriptor wake;  // eventfd
    std::mutex mutex;
    std::deque<Job> jobs;                // guarded by mutex
    std::atomic<bool> answered = false;  // a coordinator, ever

    void post(Job job);
  };

  Link(const RendezvousSpec& spec, const Times& times, const std::string& run_id, std::string member_id,
       std::size_t unauthenticated_files, Loop& loop, Sink sink, Tells tells);

  // One for each kind of Hosting.
  Status begin(const Standalone&, Scratch& scratch);
  Status begin(const External&, Scratch&);
  Status begin(const FixedHost& fixed, Scratch&);
  Status begin(const Candidates& list, Scratch&);
  void find_own_place(const Candidates& list);
  void resolve_and_join(const std::string& host);
  void start_client();
  Status host_on(const std::string& listen_address);
  void show_page();
  void hear(rendezvous::ClientEvent event);
  void deliver();

  const RendezvousSpec& spec_;
  const Times& times_;
  const Candidates* const list_;  // null: the coordinator has one host
  const std::string list_name_;
  const std::vector<int> ports_;
  const std::string member_id_;
  const std::size_t unauthenticated_files_;
  std::optional<rendezvous::JobKey> key_;
  Loop& loop_;
  Sink sink_;
  Tells tells_;
  std::string host_;
  int port_ = 0;
  std::optional<std::string> listen_address_;  // if this host is the coordinator's, or may be
  int own_place_ = -1;                         // among several that may
  bool connected_ = false;                     // was, once
  bool stores_host_ = false;                   // a `dtrun store` answered last
  std::shared_ptr<Mailbox> mailbox_;

  std::unique_ptr<rendezvous::Server> server_;
  std::unique_ptr<rendezvous::HttpServer> page_;  // asks the server
  std::unique_ptr<rendezvous::Client>
      client_;  // null while the name is being resolved; destroyed before the server
};

}  // namespace dtrun::agent
