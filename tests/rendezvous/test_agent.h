// A client of the real coordinator for tests: collects its sink's events and waits for events with a
// deadline.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/core/contract.h"
#include "rendezvous/client/client.h"
#include "rendezvous/server/server.h"
#include "tests/support/clock.h"

namespace dtrun::rendezvous {

using std::chrono::milliseconds;
inline constexpr milliseconds kPatience{20000};

// The settings that agents of one test share.
struct RunSettings {
  std::string run_id = "test";
  std::string job = "{}";
  int min_nodes = 1;
  int max_nodes = 1;
  int max_restarts = 3;
  std::int64_t last_call_ms = 30000;
  std::int64_t join_timeout_ms = 60000;
  std::int64_t heartbeat_timeout_ms = 60000;
  bool hosts = false;  // the agent's own claim
  int protocol = kRendezvousProtocol;
};

class TestAgent {
 public:
  TestAgent(std::string name, const std::string& host, int port,
            milliseconds keep_alive_timeout = milliseconds(15000), const std::optional<JobKey>& key = {},
            const std::vector<int>& more_ports = {}, const Times& times = {})
      : TestAgent(std::move(name), {.host = host,
                                    .port = port,
                                    .more_ports = more_ports,
                                    .key = key,
                                    .keep_alive_timeout = keep_alive_timeout,
                                    .times = times}) {}
  TestAgent(std::string name, const ClientOptions& options)
      : name_(std::move(name)),
        client_(Client::start(options, [this](ClientEvent event) { push(std::move(event)); })) {}

  void send(v1::FromAgent message) {
    message.set_generation(generation_);
    client_->send(message);
  }

  void join(const RunSettings& run, int nproc = 1) {
    REQUIRE(next<Opened>().has_value());
    v1::Join* join = join_.mutable_join();
    join->set_run_id(run.run_id);
    join->set_member_id(name_);
    join->set_host("host-" + name_);
    join->set_nproc(nproc);
    join->set_node_rank(-1);
    join->set_protocol(run.protocol);
    join->set_min_nodes(run.min_nodes);
    join->set_max_nodes(run.max_nodes);
    join->set_max_restarts(run.max_restarts);
    join->set_last_call_ms(run.last_call_ms);
    join->set_join_timeout_ms(run.join_timeout_ms);
    join->set_heartbeat_timeout_ms(run.heartbeat_timeout_ms);
    join->set_job(run.job);
    join->set_master_port(12345);
    join->set_group_rank(-1);
    join->set_hosts(run.hosts);
    send(join_);
  }

  // Joins anew on each connection until a coordinator answers on one; false at the deadline.
  bool rejoin(milliseconds patience = kPatience) {
    const test::Patience limit(patience);
    while (!limit.is_over() && next<Opened>(patience)) {
      send(join_);
      const auto end = wait(patience, [](const ClientEvent& event) {
        return std::holds_alternative<Connected>(event) || std::holds_alternative<Disconnected>(event);
      });
      if (end && std::holds_alternative<Connected>(*end)) return !limit.is_over();
    }
    return false;
  }

  // The same where there are several ports, on which others may answer. REQUIRES: join() was called
  std::optional<Connected> meet(milliseconds patience = kPatience) {
    for (const test::Patience limit(patience); !limit.is_over();) {
      const auto event = wait(patience, [](const ClientEvent& one) {
        return std::holds_alternative<Opened>(one) || std::holds_alternative<Connected>(one);
      });
      if (!event) return std::nullopt;
      if (const auto* met = std::get_if<Connected>(&*event)) return *met;
      send(join_);
    }
    return std::nullopt;
  }

  // The next event of the type; others before it are dropped. None at the deadline.
  template <typename T>
  std::optional<T> next(milliseconds patience = kPatience) {
    const auto found =
        wait(patience, [](const ClientEvent& event) { return std::holds_alternative<T>(event); });
    if (!found) return std::nullopt;
    return std::get<T>(*found);
  }

  // The next message whose body is of the kind.
  std::optional<v1::FromCoordinator> hear(v1::FromCoordinator::BodyCase kind,
                                          milliseconds patience = kPatience) {
    auto found = wait(patience, [kind](const ClientEvent& event) {
      const auto* received = std::get_if<Received>(&event);
      return received != nullptr && received->message.body_case() == kind;
    });
    if (!found) return std::nullopt;
    v1::FromCoordinator message = std::get<Received>(*found).message;
    if (kind == v1::FromCoordinator::kAssignment) generation_ = message.generation();
    return message;
  }

  control::KvReply kv(const control::KvRequest& request, const std::string& prefix = "g1/") {
    client_->kv(0, prefix, request);
    const auto done = next<KvDone>();
    REQUIRE(done.has_value());
    return done->reply;
  }

  Client& client() { return *client_; }
  void kill() { client_.reset(); }  // as if the process had died: nothing is said before

 private:
  void push(ClientEvent event) {
    {
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
    }
    changed_.notify_all();
  }

  template <typename Predicate>
  std::optional<ClientEvent> wait(milliseconds patience, Predicate wanted) {
    std::unique_lock lock(mutex_);
    auto found = events_.end();
    test::wait_for(changed_, lock, patience, [&] {
      found = std::find_if(events_.begin(), events_.end(), wanted);
      return found != events_.end();
    });
    if (found == events_.end()) return std::nullopt;
    ClientEvent event = std::move(*found);
    events_.erase(events_.begin(), found + 1);
    return event;
  }

  const std::string name_;
  std::int64_t generation_ = 0;
  v1::FromAgent join_;  // the message of join()
  std::mutex mutex_;    // guards events_
  std::condition_variable changed_;
  std::deque<ClientEvent> events_;
  std::unique_ptr<Client> client_;  // last: its sink uses the rest
};

inline std::unique_ptr<Server> start_server(const ServerOptions& options) {
  auto server = Server::start(options);
  REQUIRE_MESSAGE(server.ok(), server.status().message());
  return std::move(server).value();
}
inline std::unique_ptr<Server> start_server(const std::string& address = "127.0.0.1",
                                            const std::optional<JobKey>& key = {}) {
  return start_server(ServerOptions{.bind_address = address, .key = key});
}

}  // namespace dtrun::rendezvous
