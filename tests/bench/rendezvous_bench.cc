// Measures the coordinator from outside, for scripts/bench: thousands of real gRPC streams from this one
// process, and a floor to compare with, a bare gRPC server that says what agents must hear (a JoinAck for
// each Join, an Assignment for everyone at the last one) and decides nothing.
//
//   rendezvous_bench serve | serve_floor              prints its port, serves until standard input ends
//   rendezvous_bench join PORT AGENTS CONNECTIONS     seconds until every agent is JoinAck
//   rendezvous_bench assign PORT AGENTS CONNECTIONS   seconds from the Join of the last agent of a run, when
//                                                     the others are JoinAck, until all have their
//                                                     assignments
//   rendezvous_bench heartbeat PORT STREAMS COUNT     seconds until the server has digested COUNT heartbeats
//   rendezvous_bench flood PORT NUMBER                unauthenticated peers come until standard input ends,
//   at most NUMBER
//
// With a job's key in DTRUN_KEY `serve` wants it and the agents have it. A flood needs it for what
// unauthenticated peers have recorded; they themselves do not have it.
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "proto/core/contract.h"
#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/identity/identity.h"
#include "rendezvous/identity/key_source.h"
#include "rendezvous/server/server.h"
#include "rendezvous/wire/grpc_setup.h"
#include "tests/rendezvous/flood.h"

namespace {

using namespace dtrun::rendezvous;
using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kLimit{120};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::optional<JobKey> key() {
  const char* text = std::getenv(kKeyVariable);
  if (text == nullptr || *text == '\0') return std::nullopt;
  const auto found = JobKey::parse(text, kKeyVariable);
  if (found.ok()) return found.value();
  std::cerr << found.status().message() << "\n";
  std::exit(found.status().exit_code());
}

// ---- servers

class FloorStream;

// The streams that have joined, in the order of their ranks.
class FloorRun {
 public:
  void join(FloorStream* stream, int nodes);

 private:
  std::mutex mutex_;  // guards streams_
  std::vector<FloorStream*> streams_;
};

class FloorStream final : public grpc::ServerBidiReactor<v1::FromAgent, v1::FromCoordinator> {
 public:
  explicit FloorStream(FloorRun& run) : run_(run) { StartRead(&incoming_); }

  void assign(int rank, int nodes) {
    v1::Assignment& assignment = *assignment_.mutable_assignment();
    assignment.set_group_rank(rank);
    assignment.set_world_size(8 * nodes);
    assignment.set_node_count(nodes);
    assignment.mutable_node()->set_host("node" + std::to_string(rank));
    assignment.mutable_node()->set_address("127.0.0.1");
    assignment.mutable_node()->set_nproc(8);
    assignment.mutable_node()->set_first_rank(8 * rank);
    assignment.mutable_node()->set_member_id("0123456789abcdef" + std::to_string(rank));
    assignment.set_master_address("127.0.0.1");
    assignment.set_master_port(29500);
    assignment.set_reason("all " + std::to_string(nodes) + " nodes joined");
    const std::lock_guard lock(mutex_);
    assigned_ = true;
    write_assignment();
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    if (incoming_.has_join()) {
      join_ack_.mutable_join_ack()->set_address("127.0.0.1");
      join_ack_.mutable_join_ack()->set_heartbeat_interval_ms(5000);
      StartWrite(&join_ack_);
      run_.join(this, incoming_.join().min_nodes());
    }
    StartRead(&incoming_);
  }
  void OnWriteDone(bool) override {
    const std::lock_guard lock(mutex_);
    acknowledged_ = true;
    write_assignment();
  }
  void OnDone() override {}  // FloorRun may know it: lives until the process ends

  // REQUIRES: mutex_ held.
  void write_assignment() {
    if (!acknowledged_ || !assigned_) return;
    assigned_ = false;
    StartWrite(&assignment_);
  }

  FloorRun& run_;
  v1::FromAgent incoming_;
  v1::FromCoordinator join_ack_;
  std::mutex mutex_;  // guards the rest
  v1::FromCoordinator assignment_;
  bool acknowledged_ = false;  // the JoinAck is written
  bool assigned_ = false;      // the assignment is to be written
};

void FloorRun::join(FloorStream* stream, int nodes) {
  const std::lock_guard lock(mutex_);
  streams_.push_back(stream);
  if (static_cast<int>(streams_.size()) != nodes) return;
  for (int rank = 0; rank < nodes; ++rank) streams_[static_cast<std::size_t>(rank)]->assign(rank, nodes);
}

class FloorService final : public v1::Rendezvous::CallbackService {
  grpc::ServerBidiReactor<v1::FromAgent, v1::FromCoordinator>* Join(grpc::CallbackServerContext*) override {
    return new FloorStream(run_);
  }

  FloorRun run_;
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
  const auto server = Server::start({.bind_address = "127.0.0.1", .port = 0, .key = key()});
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
  join.set_protocol(dtrun::kRendezvousProtocol);
  join.set_min_nodes(nodes);
  join.set_max_nodes(nodes);
  join.set_last_call_ms(5000);
  join.set_join_timeout_ms(600000);
  join.set_heartbeat_timeout_ms(600000);
  join.set_master_port(29500);
  join.set_group_rank(-1);
  return message;
}

// The progress of all agents of a measurement.
struct Progress {
  explicit Progress(int agents) : join_ack(agents), assigned(agents), ended(agents) {}
  Countdown join_ack, assigned, ended;
};

// One agent's stream: joins and reads until the process ends; if it has heartbeats to send, it sends them one
// after the other and then closes.
class Agent final : public grpc::ClientBidiReactor<v1::FromAgent, v1::FromCoordinator> {
 public:
  Agent(v1::Rendezvous::Stub& stub, v1::FromAgent join, int heartbeats, Progress& progress)
      : outgoing_(std::move(join)), heartbeats_(heartbeats), progress_(progress) {
    stub.async()->Join(&context_, this);
    StartWrite(&outgoing_);
    StartRead(&incoming_);
    StartCall();
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (incoming_.has_join_ack()) progress_.join_ack.arrive();
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

std::shared_ptr<grpc::ChannelCredentials> credentials() {
  const std::optional<JobKey> job = key();
  if (!job) return grpc::InsecureChannelCredentials();
  const Identity identity = make_identity(*job);
  return grpc::SslCredentials({.pem_root_certs = identity.root,
                               .pem_private_key = identity.private_key,
                               .pem_cert_chain = identity.certificate});
}

// A channel with a connection of its own.
std::unique_ptr<v1::Rendezvous::Stub> connect(int port) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetSslTargetNameOverride(kCertifiedName);
  static const auto how = credentials();
  return v1::Rendezvous::NewStub(
      grpc::CreateCustomChannel("ipv4:127.0.0.1:" + std::to_string(port), how, arguments));
}

// Tells the result, and stays connected until it was read and the server measured.
int report(double seconds, int missing) {
  std::cout << "{\"seconds\": " << seconds << ", \"missing\": " << missing << "}" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
  }
  _exit(missing == 0 ? 0 : 1);
}

// Agents of a run that is one node short of starting; the stubs are its connections.
void start_agents(int agents, const std::vector<std::unique_ptr<v1::Rendezvous::Stub>>& stubs,
                  Progress& progress) {
  for (int i = 0; i < agents; ++i) {
    v1::Rendezvous::Stub& stub = *stubs[static_cast<std::size_t>(i) % stubs.size()];
    new Agent(stub, join_message(i, agents + 1), 0, progress);  // lives until the process ends
  }
}

int join_all(int port, int agents, int connections) {
  std::vector<std::unique_ptr<v1::Rendezvous::Stub>> stubs;
  Progress progress(agents);
  const auto begin = Clock::now();
  for (int i = 0; i < connections; ++i) stubs.push_back(connect(port));
  start_agents(agents, stubs, progress);
  const int missing = progress.join_ack.wait();
  return report(seconds_since(begin), missing);
}

int assign_all(int port, int agents, int connections) {
  std::vector<std::unique_ptr<v1::Rendezvous::Stub>> stubs;
  Progress progress(agents - 1), last(1);
  for (int i = 0; i < connections; ++i) stubs.push_back(connect(port));
  start_agents(agents - 1, stubs, progress);
  const int unwelcome = progress.join_ack.wait();
  const auto begin = Clock::now();
  new Agent(*stubs.front(), join_message(agents - 1, agents), 0, last);
  const int unassigned = progress.assigned.wait() + last.assigned.wait();
  return report(seconds_since(begin), unwelcome + unassigned);
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
  const int unanswered = last.join_ack.wait();
  return report(seconds_since(begin), unfinished + unanswered);
}

// ---- unauthenticated peers

int flood(int port, long number) {
  using dtrun::test::Flood;
  signal(SIGPIPE, SIG_IGN);
  const auto recordings = key() ? dtrun::test::record(port, *key()) : dtrun::test::Recordings();
  if (recordings.plain.empty() || recordings.locked.empty()) {
    std::cerr << "nobody answers at " << port << " who has the key in " << kKeyVariable << "\n";
    return 1;
  }
  const auto begin = Clock::now();
  Flood peers(port, number, recordings);
  std::thread([&peers] {
    for (std::string line; std::getline(std::cin, line);) {
    }
    peers.stop();
  }).detach();
  peers.wait();
  std::cout << "{\"seconds\": " << seconds_since(begin) << ", \"answered\": " << peers.answered()
            << ", \"peers\": " << peers.come() << ", \"kinds\": {";
  for (int kind = 0; kind < Flood::kKinds; ++kind)
    std::cout << (kind == 0 ? "" : ", ") << '"' << Flood::kNames[static_cast<std::size_t>(kind)]
              << "\": " << peers.come(kind);
  std::cout << "}}" << std::endl;
  _exit(0);  // a thread may still read
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
  set_up_grpc();  // the same for coordinator, floor and agents
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "serve") return serve();
  if (mode == "serve_floor") return serve_floor();
  if (mode == "flood" && argc == 4) return flood(std::atoi(argv[2]), std::atol(argv[3]));
  if (argc == 5) {
    const int port = std::atoi(argv[2]), first = std::atoi(argv[3]), second = std::atoi(argv[4]);
    if (mode == "join") return join_all(port, first, second);
    if (mode == "assign") return assign_all(port, first, second);
    if (mode == "heartbeat") return send_heartbeats(port, first, second);
  }
  std::cerr << "usage: rendezvous_bench serve | serve_floor | join PORT AGENTS CONNECTIONS | "
               "assign PORT AGENTS CONNECTIONS | heartbeat PORT STREAMS COUNT | flood PORT NUMBER\n";
  return 64;
}
