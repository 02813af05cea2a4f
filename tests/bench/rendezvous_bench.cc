// Measures the coordinator from outside, for scripts/bench: thousands of real gRPC streams from this one
// process, and a floor to compare with, a bare gRPC server that answers every Join with a Welcome and decides
// nothing.
//
//   rendezvous_bench serve | serve_floor            prints its port, serves until standard input ends
//   rendezvous_bench join PORT AGENTS CONNECTIONS   seconds until every agent is welcome
//   rendezvous_bench assign PORT AGENTS CONNECTIONS seconds until every agent of a full run has its
//   assignment rendezvous_bench heartbeat PORT STREAMS COUNT   seconds until the server has digested COUNT
//   heartbeats
#include <grpcpp/create_channel.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/server.h"

namespace {

using namespace dtrun::rendezvous;
using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kLimit{120};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// ---- servers

class FloorStream final : public grpc::ServerBidiReactor<v1::FromAgent, v1::FromCoordinator> {
 public:
  FloorStream() { StartRead(&incoming_); }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    if (incoming_.has_join()) {
      welcome_.mutable_welcome()->set_address("127.0.0.1");
      welcome_.mutable_welcome()->set_heartbeat_interval_ms(5000);
      StartWrite(&welcome_);
    }
    StartRead(&incoming_);
  }
  void OnWriteDone(bool) override {}
  void OnDone() override { delete this; }

  v1::FromAgent incoming_;
  v1::FromCoordinator welcome_;
};

class FloorService final : public v1::Rendezvous::CallbackService {
  grpc::ServerBidiReactor<v1::FromAgent, v1::FromCoordinator>* Attend(grpc::CallbackServerContext*) override {
    return new FloorStream;
  }
};

void serve_until_input_ends(int port) {
  std::cout << port << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
  }
  _exit(0);  // thousands of streams need not be wound up
}

int serve_floor() {
  FloorService service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  serve_until_input_ends(port);
  return 0;
}

int serve() {
  const auto server = Server::start({"127.0.0.1", 0});
  if (!server.ok()) {
    std::cerr << server.status().message() << "\n";
    return 1;
  }
  serve_until_input_ends(server.value()->port());
  return 0;
}

// ---- agents

// Counts down to zero from any thread.
class Countdown {
 public:
  explicit Countdown(int n) : left_(n) {}
  void arrive() {
    const std::lock_guard lock(mutex_);
    if (--left_ == 0) done_.notify_all();
  }
  // How many are missing at the deadline.
  int wait() {
    std::unique_lock lock(mutex_);
    done_.wait_for(lock, kLimit, [this] { return left_ <= 0; });
    return left_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  int left_;
};

v1::FromAgent join_message(int number, int nodes) {
  v1::FromAgent message;
  v1::Join& join = *message.mutable_join();
  join.set_run_id("bench");
  join.set_member_id("0123456789abcdef" + std::to_string(number));
  join.set_host("node" + std::to_string(number));
  join.set_address("10.0." + std::to_string(number / 250) + "." + std::to_string(number % 250));
  join.set_nproc(8);
  join.set_node_rank(-1);
  join.set_min_nodes(nodes);
  join.set_max_nodes(nodes);
  join.set_last_call_ms(5000);
  join.set_join_timeout_ms(600000);
  join.set_heartbeat_timeout_ms(600000);
  join.set_master_port(29500);
  join.set_group_rank(-1);
  return message;
}

// What all agents of a measurement have in common.
struct Progress {
  explicit Progress(int agents) : welcome(agents), assigned(agents), ended(agents) {}
  Countdown welcome, assigned, ended;
};

// One agent's stream: joins and reads until the process ends; if it has heartbeats to send, it sends them one
// after the other and then closes.
class Agent final : public grpc::ClientBidiReactor<v1::FromAgent, v1::FromCoordinator> {
 public:
  Agent(v1::Rendezvous::Stub& stub, v1::FromAgent join, int heartbeats, Progress& progress)
      : outgoing_(std::move(join)), heartbeats_(heartbeats), progress_(progress) {
    stub.async()->Attend(&context_, this);
    StartWrite(&outgoing_);
    StartRead(&incoming_);
    StartCall();
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (incoming_.has_welcome()) progress_.welcome.arrive();
    if (incoming_.has_assignment()) progress_.assigned.arrive();
    if (incoming_.has_rejected()) std::cerr << "rejected: " << incoming_.rejected().message() << "\n";
    StartRead(&incoming_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok || heartbeats_ == 0) return;
    outgoing_.mutable_heartbeat();
    if (--heartbeats_ == 0)
      StartWriteLast(&outgoing_, grpc::WriteOptions());
    else
      StartWrite(&outgoing_);
  }
  void OnDone(const grpc::Status& status) override {
    if (!status.ok()) std::cerr << "a stream ended: " << status.error_message() << "\n";
    progress_.ended.arrive();
  }

  grpc::ClientContext context_;
  v1::FromAgent outgoing_;
  v1::FromCoordinator incoming_;
  int heartbeats_;
  Progress& progress_;
};

// A channel with a connection of its own.
std::unique_ptr<v1::Rendezvous::Stub> connect(int port) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(-1);
  return v1::Rendezvous::NewStub(grpc::CreateCustomChannel("ipv4:127.0.0.1:" + std::to_string(port),
                                                           grpc::InsecureChannelCredentials(), arguments));
}

// Tells the result, and stays connected until it was read and the server measured.
int report(double seconds, int missing) {
  std::cout << "{\"seconds\": " << seconds << ", \"missing\": " << missing << "}" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
  }
  _exit(missing == 0 ? 0 : 1);
}

int join_all(int port, int agents, int connections, bool start) {
  std::vector<std::unique_ptr<v1::Rendezvous::Stub>> stubs;
  Progress progress(agents);
  const int nodes = start ? agents : agents + 1;  // one more than there are keeps the run from starting
  const auto begin = Clock::now();
  for (int i = 0; i < connections; ++i) stubs.push_back(connect(port));
  for (int i = 0; i < agents; ++i) {
    auto& stub = *stubs[static_cast<std::size_t>(i % connections)];
    new Agent(stub, join_message(i, nodes), 0, progress);  // lives until the process ends
  }
  const int missing = start ? progress.assigned.wait() : progress.welcome.wait();
  return report(seconds_since(begin), missing);
}

// A stream ends when the server has read all of it; the coordinator's one thread has digested what it was
// handed once it answers a join that comes after.
int send_heartbeats(int port, int streams, int count) {
  std::vector<std::unique_ptr<v1::Rendezvous::Stub>> stubs;
  Progress progress(streams), last(1);
  const auto begin = Clock::now();
  for (int i = 0; i < streams; ++i) {
    stubs.push_back(connect(port));
    new Agent(*stubs.back(), join_message(i, streams + 2), count / streams, progress);
  }
  const int unfinished = progress.ended.wait();
  new Agent(*stubs.front(), join_message(streams, streams + 2), 0, last);
  const int unanswered = last.welcome.wait();
  return report(seconds_since(begin), unfinished + unanswered);
}

void allow_many_files() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int main(int argc, char** argv) {
  allow_many_files();
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "serve") return serve();
  if (mode == "serve_floor") return serve_floor();
  if (argc == 5) {
    const int port = std::atoi(argv[2]), first = std::atoi(argv[3]), second = std::atoi(argv[4]);
    if (mode == "join") return join_all(port, first, second, false);
    if (mode == "assign") return join_all(port, first, second, true);
    if (mode == "heartbeat") return send_heartbeats(port, first, second);
  }
  std::cerr << "usage: rendezvous_bench serve | serve_floor | join PORT AGENTS CONNECTIONS | "
               "assign PORT AGENTS CONNECTIONS | heartbeat PORT STREAMS COUNT\n";
  return 64;
}
