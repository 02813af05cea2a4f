// Three hosts of which each may be the coordinator, on three addresses of loopback: real servers, connections
// and votes. tests/e2e/failover_test.cc has the cases that need real machines.
#include <doctest/doctest.h>

#include <array>
#include <limits>

#include "rendezvous/client/caller.h"
#include "rendezvous/client/channel.h"
#include "rendezvous/client/peer_links.h"
#include "rendezvous/client/status_client.h"
#include "rendezvous/wire/election.h"
#include "rendezvous/wire/grpc_setup.h"
#include "tests/rendezvous/test_agent.h"
#include "tests/support/ports.h"

namespace dtrun::rendezvous::failover_test {
namespace {

const std::vector<std::string> kHosts{"127.0.0.1", "127.0.0.2", "127.0.0.3"};

class Cluster {
 public:
  // `ports`: on one of which each host listens.
  explicit Cluster(const std::optional<JobKey>& key = {}, std::vector<int> ports = {test::free_port()})
      : port(ports.front()), key_(key), ports_(std::move(ports)) {}

  // On the port with this number.
  void start(int host, const std::string& list = "list", std::size_t its_port = 0) {
    ServerOptions options;
    options.bind_address = kHosts[static_cast<std::size_t>(host)];
    options.port = ports_[its_port];
    options.key = key_;
    options.separate = separate;
    options.candidate = {.settings = election::settings_for(3, host, false, merged_runs),
                         .list = list,
                         .peers = peers_on(kHosts, host, ports_, key_, list)};
    auto server = Server::start(options);
    REQUIRE_MESSAGE(server.ok(), server.status().message());
    servers[static_cast<std::size_t>(host)] = std::move(server).value();
  }
  void start_all() {
    for (int host = 0; host < 3; ++host) start(host);
  }
  void stop(int host) { servers[static_cast<std::size_t>(host)].reset(); }
  // The one that leads; -1 if none does within the patience.
  int leader() const {
    for (const test::Patience patience(kPatience); !patience.is_over();) {
      for (int host = 0; host < 3; ++host)
        if (servers[static_cast<std::size_t>(host)] && servers[static_cast<std::size_t>(host)]->leads())
          return host;
      std::this_thread::sleep_for(milliseconds(2));
    }
    return -1;
  }

  // Whether this host comes to follow the one that leads, within the patience: from then on it is a voter.
  bool follows(int host, std::size_t its_port = 0) const { return term_at(host, its_port) > 0; }
  // The one of the leader.
  std::int64_t term() const { return term_at(leader(), 0); }

  const int port;
  bool separate = false;  // the servers are stores
  std::array<std::unique_ptr<Server>, 3> servers;

 private:
  // Of the leader that this host follows; 0 if it follows none within the patience.
  std::int64_t term_at(int host, std::size_t its_port) const {
    Caller caller(kHosts[static_cast<std::size_t>(host)], {ports_[its_port]}, key_);
    using Leader = grpc::Status (v1::Election::Stub::*)(grpc::ClientContext*, const v1::LeaderRequest&,
                                                        v1::LeaderReply*);
    v1::LeaderRequest request;
    request.set_wait_ms(500);
    v1::LeaderReply reply;
    for (const test::Patience patience(kPatience); !patience.is_over();) {
      const Status asked =
          caller.call(static_cast<Leader>(&v1::Election::Stub::Leader), request, &reply, milliseconds(5000));
      if (asked.ok() && reply.term() > 0) return reply.term();
      if (!asked.ok()) std::this_thread::sleep_for(milliseconds(20));
    }
    return 0;
  }

  const std::optional<JobKey> key_;
  const std::vector<int> ports_;
};

// An agent that joins again on each connection, as a real one does.
class Follower {
 public:
  // `was_in`: a generation that it says it is part of, as its first of two nodes.
  Follower(std::string name, int port, const std::optional<JobKey>& key = {}, int was_in = 0,
           const std::vector<int>& more_ports = {}, const std::string& list = "")
      : name_(std::move(name)) {
    assigned.set_generation(was_in);
    assigned.mutable_assignment()->set_node_count(2);
    assigned.mutable_assignment()->set_world_size(2);
    ClientOptions options;
    options.hosts = kHosts;
    options.port = port;
    options.more_ports = more_ports;
    options.list = list;
    options.key = key;
    const std::lock_guard lock(mutex_);  // the handler of the first event sends through it
    client_ = Client::start(options, [this](ClientEvent event) { hear(std::move(event)); });
  }

  template <typename Predicate>
  bool eventually(Predicate predicate) {
    std::unique_lock lock(mutex_);
    return test::wait_for(changed_, lock, kPatience, [&] { return predicate(*this); });
  }
  void finish() {
    v1::FromAgent message;
    {
      const std::lock_guard lock(mutex_);
      finished_ = true;
      message = finished();
    }
    client_->send(message);
  }
  Client& client() { return *client_; }

  // Guarded by the mutex; looked at within eventually().
  int join_acks = 0;
  bool resumed = false;
  std::int64_t term = 0;
  v1::FromCoordinator assigned;
  std::optional<v1::JobEnd> end;
  std::vector<control::KvReply> replies;
  Status failed;

 private:
  void hear(ClientEvent event) {
    std::optional<v1::FromAgent> answer;
    {
      const std::lock_guard lock(mutex_);
      if (std::holds_alternative<Opened>(event)) answer = join();
      if (auto* done = std::get_if<KvDone>(&event)) replies.push_back(done->reply);
      if (auto* lost = std::get_if<Disconnected>(&event); lost != nullptr && lost->permanent)
        failed = lost->why;
      if (auto* received = std::get_if<Received>(&event)) {
        const v1::FromCoordinator& message = received->message;
        CHECK(message.term() >= term);
        term = message.term();
        if (message.has_join_ack()) {
          ++join_acks;
          resumed = message.join_ack().resumed();
          if (resumed && finished_) answer = finished();
        }
        if (message.has_assignment()) assigned = message;
        if (message.has_job_end()) end = message.job_end();
      }
    }
    changed_.notify_all();
    if (answer) client_->send(*answer);
  }

  v1::FromAgent finished() const {
    v1::FromAgent message;
    message.set_generation(assigned.generation());
    message.mutable_finished();
    return message;
  }

  v1::FromAgent join() const {
    v1::FromAgent message;
    message.set_generation(assigned.generation());
    v1::Join* join = message.mutable_join();
    join->set_run_id("test");
    join->set_member_id(name_);
    join->set_host("host-" + name_);
    join->set_nproc(1);
    join->set_node_rank(-1);
    join->set_protocol(kRendezvousProtocol);
    join->set_min_nodes(2);
    join->set_max_nodes(2);
    join->set_last_call_ms(30000);
    join->set_join_timeout_ms(60000);
    join->set_heartbeat_timeout_ms(60000);
    join->set_job("{}");
    join->set_group_rank(-1);
    if (assigned.generation() == 0) return message;
    join->set_group_rank(assigned.assignment().group_rank());
    join->set_node_count(assigned.assignment().node_count());
    join->set_first_rank(assigned.assignment().node().first_rank());
    join->set_world_size(assigned.assignment().world_size());
    return message;
  }

  const std::string name_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool finished_ = false;
  std::unique_ptr<Client> client_;  // the last: it ends before what it tells
};

bool has_generation(const Follower& one) { return one.assigned.generation() > 0; }

control::KvRequest request(control::KvRequest::Op op, const std::string& value = "") {
  control::KvRequest request;
  request.set_id(7);
  request.set_op(op);
  request.set_key("k");
  request.set_value(value);
  request.set_timeout_ms(10000);
  return request;
}

}  // namespace

TEST_CASE("the next host takes over: agents keep their seats, and the store its keys") {
  Cluster cluster;
  cluster.start_all();
  Follower a("a", cluster.port), b("b", cluster.port);
  REQUIRE(a.eventually(has_generation));
  REQUIRE(b.eventually(has_generation));
  a.client().kv(0, "g1/", request(control::KvRequest::SET, "v"));
  REQUIRE(a.eventually([](const Follower& one) { return one.replies.size() == 1; }));
  const int first = cluster.leader();
  REQUIRE(first >= 0);
  const test::Stopwatch watch;
  cluster.stop(first);
  for (Follower* one : {&a, &b}) {
    REQUIRE(one->eventually([](const Follower& f) { return f.join_acks == 2; }));
    CHECK(one->eventually([](const Follower& f) { return f.resumed && f.assigned.generation() == 1; }));
  }
  MESSAGE("handed over within " << watch.wall() / milliseconds(1) << " ms");
  CHECK(cluster.leader() != first);
  b.client().kv(0, "g1/", request(control::KvRequest::GET));
  REQUIRE(b.eventually([](const Follower& one) { return one.replies.size() == 1; }));
  CHECK(b.eventually([](const Follower& one) { return one.replies[0].value() == "v"; }));

  // And the one that comes back is a voter for the next.
  cluster.start(first);
  REQUIRE(cluster.follows(first));
  const int second = cluster.leader();
  cluster.stop(second);
  REQUIRE(a.eventually([](const Follower& f) { return f.join_acks >= 3; }));
  a.finish();
  b.finish();
  for (Follower* one : {&a, &b}) {
    CHECK(one->eventually([](const Follower& f) { return f.end && f.end->exit_code() == 0; }));
  }
}

TEST_CASE("an end that was told is told by the next coordinator too") {
  Cluster cluster;
  cluster.start_all();
  auto a = std::make_unique<Follower>("a", cluster.port);
  Follower b("b", cluster.port);
  REQUIRE(a->eventually(has_generation));
  REQUIRE(b.eventually(has_generation));
  const int first = cluster.leader();
  a->finish();
  b.finish();
  REQUIRE(a->eventually([](const Follower& f) { return f.end.has_value(); }));
  cluster.stop(first);
  REQUIRE(cluster.leader() != first);
  // A client with the generation that is over has not heard of its end.
  Follower late("late", cluster.port, {}, 1);
  CHECK(late.eventually([](const Follower& f) { return f.end && f.end->exit_code() == 0; }));
  // A new agent begins another run, whose generations count on.
  Follower c("c", cluster.port), d("d", cluster.port);
  CHECK(c.eventually([](const Follower& f) { return f.assigned.generation() == 2; }));
  const auto status = fetch_status(list_text(kHosts), cluster.port, "test", kPatience);
  CHECK_MESSAGE(status.ok(), status.status().message());
}

TEST_CASE("with a key all the same, and who has another one is told so") {
  const JobKey key = JobKey::random();
  Cluster cluster(key);
  cluster.start_all();
  Follower a("a", cluster.port, key), b("b", cluster.port, key);
  REQUIRE(a.eventually(has_generation));
  REQUIRE(b.eventually(has_generation));
  const int first = cluster.leader();
  cluster.stop(first);
  CHECK(b.eventually([](const Follower& f) { return f.join_acks == 2 && f.resumed; }));
  Follower unauthenticated("c", cluster.port, JobKey::random());
  CHECK(unauthenticated.eventually(
      [](const Follower& f) { return f.failed.exit_code() == kExitNoPermission; }));
}

TEST_CASE("a host with another list gets no votes, and gives none") {
  Cluster cluster;
  cluster.start(0);
  cluster.start(1, "another list");
  std::this_thread::sleep_for(milliseconds(2000));
  CHECK_FALSE(cluster.servers[0]->leads());
  CHECK_FALSE(cluster.servers[1]->leads());
  cluster.start(2);
  CHECK(cluster.leader() >= 0);
  CHECK_FALSE(cluster.servers[1]->leads());
}

TEST_CASE("hosts on one of several ports each find each other, beside others with another list") {
  const std::vector<int> ports{test::free_port(), test::free_port(), test::free_port()};
  const JobKey key = JobKey::random();
  JobKey of_others = key;
  SUBCASE("of the same user") {}
  SUBCASE("of another user") { of_others = JobKey::random(); }
  Cluster others(of_others, ports), ours(key, ports);
  for (int host = 0; host < 3; ++host) others.start(host, "others");
  REQUIRE(others.leader() >= 0);
  {
    // Ours may still come.
    Follower early("c", ports[0], key, 0, {ports[1], ports[2]}, "ours");
    std::this_thread::sleep_for(milliseconds(2500));
    CHECK(early.eventually([](const Follower& f) { return f.failed.ok() && f.join_acks == 0; }));
  }
  ours.start(0, "ours", 1);
  ours.start(1, "ours", 2);
  ours.start(2, "ours", 1);
  Follower a("a", ports[0], key, 0, {ports[1], ports[2]}, "ours"),
      b("b", ports[0], key, 0, {ports[1], ports[2]}, "ours");
  REQUIRE(a.eventually(has_generation));
  REQUIRE(b.eventually(has_generation));
  for (int times = 0; times < 2; ++times) {
    const int first = ours.leader();
    REQUIRE(first >= 0);
    const int join_acks = times + 2;
    ours.stop(first);
    CHECK(b.eventually([&](const Follower& f) { return f.join_acks >= join_acks && f.resumed; }));
    CHECK(ours.leader() != first);
    const std::size_t other_port = first == 0 ? 2 : 1;  // than before
    ours.start(first, "ours", other_port);
    REQUIRE(ours.follows(first, other_port));
  }
  CHECK(others.leader() >= 0);
}

TEST_CASE("one of three alone does not lead, and answers nobody") {
  Cluster cluster;
  cluster.start(0);
  Follower a("a", cluster.port);
  std::this_thread::sleep_for(milliseconds(2000));
  CHECK_FALSE(cluster.servers[0]->leads());
  const auto status = fetch_status("127.0.0.1", cluster.port, "", milliseconds(2000));
  CHECK(status.status().exit_code() == kExitUnavailable);
  cluster.start(1);
  CHECK(cluster.leader() >= 0);
}

// The leading host, for messages that Client does not send.
class Speaker {
 public:
  explicit Speaker(const Cluster& cluster) {
    const int leader = cluster.leader();
    REQUIRE(leader >= 0);
    const Interrupt never;
    const auto dialled = dial(kHosts[static_cast<std::size_t>(leader)], cluster.port, kPatience, never);
    channel_ = open_channel(dialled, cluster.port, {});
  }

  // Until it is answered or refused, or for half a second.
  void join_in_term(std::int64_t term) const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + milliseconds(500));
    const auto stream = v1::Rendezvous::NewStub(channel_)->Join(&context);
    v1::FromAgent message;
    v1::Join& join = *message.mutable_join();
    join.set_run_id("job7");
    join.set_member_id("m" + std::to_string(term));
    join.set_host("host");
    join.set_nproc(1);
    join.set_node_rank(-1);
    join.set_protocol(kRendezvousProtocol);
    join.set_min_nodes(2);
    join.set_max_nodes(2);
    join.set_group_rank(-1);
    join.set_term(term);
    v1::FromCoordinator heard;
    if (stream->Write(message)) stream->Read(&heard);
  }
  bool set(const std::string& key, const std::string& value) const {
    grpc::ClientContext context;
    v1::SetRequest request;
    request.set_key(key);
    request.set_value(value);
    v1::SetReply reply;
    return v1::Store::NewStub(channel_)->Set(&context, request, &reply).ok();
  }
  std::string get(const std::string& key) const {
    grpc::ClientContext context;
    v1::GetRequest request;
    request.set_key(key);
    v1::GetReply reply;
    const grpc::Status status = v1::Store::NewStub(channel_)->Get(&context, request, &reply);
    return status.ok() ? reply.value() : "(" + status.error_message() + ")";
  }

 private:
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_CASE("a member that lies about terms deposes a leader that leads again at once, with all keys") {
  Cluster cluster;
  cluster.separate = true;
  cluster.start_all();
  constexpr std::int64_t kLastTerm = std::numeric_limits<std::int64_t>::max() - 1;
  bool kept = false;
  // On a busy machine another one may be faster, and begins with none.
  for (int times = 0; times < 5 && !kept; ++times) {
    REQUIRE(Speaker(cluster).set("job8/a", "kept"));
    const std::int64_t before = cluster.term();
    for (const std::int64_t term : {std::int64_t{1000}, kLastTerm, kLastTerm})
      Speaker(cluster).join_in_term(term);
    CHECK(cluster.term() > before);
    kept = Speaker(cluster).get("job8/a") == "kept";
  }
  CHECK(kept);
}

}  // namespace dtrun::rendezvous::failover_test
