// Scoped tokens of a store, over real sockets: each opens its run, and neither another one nor the way to
// pose as the store.
#include <doctest/doctest.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <ctime>
#include <limits>

#include "proto/core/contract.h"
#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/client/channel.h"
#include "rendezvous/client/peer_links.h"
#include "rendezvous/client/status_client.h"
#include "rendezvous/identity/scoped_token.h"
#include "rendezvous/wire/election.h"
#include "tests/rendezvous/test_agent.h"
#include "tests/support/ports.h"

namespace dtrun::rendezvous {
namespace {

ScopedToken token_for(const JobKey& store, const std::string& run_id, std::int64_t seconds = 3600) {
  return ScopedToken::issue(store, run_id, std::time(nullptr) + seconds);
}

std::unique_ptr<Server> start_store(const JobKey& key) {
  auto server = Server::start({.bind_address = "127.0.0.1", .separate = true, .key = key});
  REQUIRE_MESSAGE(server.ok(), server.status().message());
  return std::move(server).value();
}

RunSettings settings_of(const std::string& run_id) {
  RunSettings run;
  run.run_id = run_id;
  return run;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

control::KvRequest request_of(control::KvRequest::Op op, const std::string& value = "") {
  control::KvRequest request;
  request.set_op(op);
  request.set_key("a");
  request.set_value(value);
  return request;
}

// A store at which job8 runs with the key, and job7 with a scoped token.
struct Site {
  Site() {
    owner.join(settings_of("job8"));
    guest.join(settings_of("job7"));
    REQUIRE(owner.hear(v1::FromCoordinator::kAssignment).has_value());
    REQUIRE(guest.hear(v1::FromCoordinator::kAssignment).has_value());
    REQUIRE(owner.kv(request_of(control::KvRequest::SET, "secret"), "job8/1/").ok());
  }
  const JobKey key = JobKey::random();
  const std::unique_ptr<Server> server = start_store(key);
  const Credential token = token_for(key, "job7");
  TestAgent owner{"owner", "127.0.0.1", server->port(), milliseconds(15000), key};
  TestAgent guest{"guest", "127.0.0.1", server->port(), milliseconds(15000), token};
};

TEST_CASE("a scoped token opens its run: agents join, use the store and ask for the status") {
  Site site;
  CHECK(site.guest.kv(request_of(control::KvRequest::SET, "b"), "job7/1/").ok());
  CHECK(site.guest.kv(request_of(control::KvRequest::GET), "job7/1/").value() == "b");
  for (const std::string run_id : {"", "job7"}) {
    const auto status =
        fetch_status("127.0.0.1", site.server->port(), run_id, milliseconds(5000), site.token);
    REQUIRE_MESSAGE(status.ok(), status.status().message());
    REQUIRE(status.value().runs_size() == 1);
    CHECK(status.value().runs(0).run_id() == "job7");
  }
  const auto all = fetch_status("127.0.0.1", site.server->port(), "", milliseconds(5000), site.key);
  REQUIRE(all.ok());
  CHECK(all.value().runs_size() == 2);
}

TEST_CASE("a scoped token opens no other run") {
  Site site;
  const int port = site.server->port();
  TestAgent intruder("intruder", "127.0.0.1", port, milliseconds(15000), site.token);
  intruder.join(settings_of("job8"));
  const auto refused = intruder.hear(v1::FromCoordinator::kRejected);
  REQUIRE(refused.has_value());
  CHECK(refused->rejected().reason() == v1::Rejected::NOT_PERMITTED);
  CHECK(contains(refused->rejected().message(), "scoped token for run job7"));
  CHECK(site.server->members() == 2);

  for (const auto op : {control::KvRequest::SET, control::KvRequest::GET}) {
    for (const std::string prefix : {"job8/1/", "job77/1/", ""}) {
      const control::KvReply reply = site.guest.kv(request_of(op, "forged"), prefix);
      CAPTURE(op);
      CHECK(!reply.ok());
      CHECK(contains(reply.error(), "scoped token for run job7"));
      CHECK(reply.value().empty());
    }
  }
  CHECK(site.owner.kv(request_of(control::KvRequest::GET), "job8/1/").value() == "secret");

  const auto status = fetch_status("127.0.0.1", port, "job8", milliseconds(5000), site.token);
  REQUIRE(!status.ok());
  CHECK(status.status().exit_code() == kExitNoPermission);
  CHECK(contains(status.status().message(), "scoped token for run job7"));
  const EndOfRun end("127.0.0.1", port, "job8", site.token);
  const auto patience = std::chrono::steady_clock::now() + kPatience;
  while (!end.broken() && std::chrono::steady_clock::now() < patience) usleep(10000);
  CHECK(end.broken());
}

TEST_CASE("a coordinator in an agent of the same user's lets no scoped token in, and the reason is told") {
  const JobKey key = JobKey::random();
  const auto server = start_server("127.0.0.1", key);
  REQUIRE(fetch_status("127.0.0.1", server->port(), "", milliseconds(5000), key).ok());
  const auto status =
      fetch_status("127.0.0.1", server->port(), "", milliseconds(5000), Credential(token_for(key, "job7")));
  REQUIRE(!status.ok());
  CHECK(status.status().exit_code() == kExitNoPermission);
  CHECK_MESSAGE(contains(status.status().message(), "takes no scoped tokens"), status.status().message());
}

TEST_CASE("a scoped token of another store is another key") {
  const JobKey here = JobKey::random(), there = JobKey::random();
  const auto server = start_store(here);
  const auto status =
      fetch_status("127.0.0.1", server->port(), "", milliseconds(5000), Credential(token_for(there, "job7")));
  REQUIRE(!status.ok());
  CHECK(status.status().exit_code() == kExitNoPermission);
  CHECK(contains(status.status().message(), here.fingerprint()));
  CHECK(contains(status.status().message(), there.fingerprint()));
}

TEST_CASE("a scoped token that has ended by the store's clock is refused at once, and the reason told") {
  const JobKey key = JobKey::random();
  const auto server = start_store(key);
  const Credential ended = token_for(key, "job7", -60);
  TestAgent late("late", "127.0.0.1", server->port(), milliseconds(15000), ended);
  REQUIRE(late.next<Opened>().has_value());
  late.send({});
  const auto refusal = late.next<Disconnected>(milliseconds(3000));
  REQUIRE(refusal.has_value());
  CAPTURE(refusal->why.message());
  CHECK(refusal->permanent);
  CHECK(refusal->why.exit_code() == kExitNoPermission);
  CHECK(contains(refusal->why.message(), "the scoped token for run job7 ended at 20"));
  CHECK(!contains(refusal->why.message(), ended.text()));
  const auto status = fetch_status("127.0.0.1", server->port(), "", milliseconds(5000), ended);
  REQUIRE(!status.ok());
  CHECK(contains(status.status().message(), "the scoped token for run job7 ended at 20"));
}

// Answers any request, and counts.
class Impostor final : public v1::Rendezvous::Service {
 public:
  explicit Impostor(const Identity& identity) {
    grpc::SslServerCredentialsOptions ssl(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    ssl.pem_root_certs = identity.root;
    ssl.pem_key_cert_pairs = {{identity.private_key, identity.certificate}};
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(ssl), &port);
    builder.RegisterService(this);
    server = builder.BuildAndStart();
    REQUIRE(server != nullptr);
  }
  grpc::Status Status(grpc::ServerContext*, const v1::StatusRequest*, v1::StatusReply*) override {
    ++asked;
    return grpc::Status::OK;
  }
  int port = 0;
  std::atomic<int> asked{0};
  std::unique_ptr<grpc::Server> server;
};

TEST_CASE("who has a scoped token cannot pose as the store, neither to others nor to other guests") {
  const JobKey key = JobKey::random();
  // A run may have the name that clients look for in certificates.
  Impostor impostor(token_for(key, "dtrun").identity());
  for (const Credential& who : {Credential(key), Credential(token_for(key, "dtrun"))}) {
    const auto status = fetch_status("127.0.0.1", impostor.port, "", milliseconds(5000), who);
    CHECK(!status.ok());
  }
  CHECK(impostor.asked == 0);
  Impostor member(make_identity(key));  // so that the above can fail
  CHECK(fetch_status("127.0.0.1", member.port, "", milliseconds(5000), key).ok());
  CHECK(member.asked == 1);
}

// Speaks the protocol as it likes, without what Client sees to.
class Speaker {
 public:
  Speaker(const std::string& host, int port, const Credential& who) {
    const Interrupt never;
    channel_ = open_channel(dial(host, port, milliseconds(5000), never), port, who);
  }

  // One Join stream with this Join of job7; returns the messages until the end, or for so long.
  void join(const v1::Join& join, milliseconds patience) const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + patience);
    const auto stream = v1::Rendezvous::NewStub(channel_)->Join(&context);
    v1::FromAgent message;
    *message.mutable_join() = join;
    v1::FromCoordinator heard;
    if (stream->Write(message)) stream->Read(&heard);
  }
  grpc::Status set(const std::string& key, const std::string& value) const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    v1::SetRequest request;
    request.set_key(key);
    request.set_value(value);
    v1::SetReply reply;
    return v1::Store::NewStub(channel_)->Set(&context, request, &reply);
  }
  // Asks the store with this place in the list of three for its vote, as the one with the next place does.
  grpc::Status ask_for_vote(int place) const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    v1::VoteCall request;
    request.set_list("list");
    request.set_from((place + 1) % 3);
    request.set_to(place);
    request.mutable_ask()->set_kind(v1::VoteRequest::PRE_VOTE);
    v1::VoteReply reply;
    return v1::Election::NewStub(channel_)->Vote(&context, request, &reply);
  }
  std::string get(const std::string& key) const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    v1::GetRequest request;
    request.set_key(key);
    v1::GetReply reply;
    const grpc::Status status = v1::Store::NewStub(channel_)->Get(&context, request, &reply);
    return status.ok() ? reply.value() : "(" + status.error_message() + ")";
  }

 private:
  std::shared_ptr<grpc::Channel> channel_;
};

// Three stores that choose a leader, of which it becomes the first.
struct Stores {
  Stores() {
    for (int self = 0; self < 3; ++self) {
      ServerOptions options{.bind_address = hosts[static_cast<std::size_t>(self)],
                            .port = port,
                            .separate = true,
                            .key = key,
                            .notice = [this](const std::string&) { ++changes; }};
      election::Settings settings = election::settings_for(3, self, false, merged_runs);
      options.candidate = {.settings = settings,
                           .list = "list",
                           .peers = peers_on(hosts, self, {port}, Credential(key), "list")};
      auto server = Server::start(options);
      REQUIRE_MESSAGE(server.ok(), server.status().message());
      servers.push_back(std::move(server).value());
    }
  }
  std::string leader() const {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < deadline) {
      for (std::size_t i = 0; i < servers.size(); ++i)
        if (servers[i]->leads()) return hosts[i];
      usleep(1000);
    }
    return "";
  }
  const JobKey key = JobKey::random();
  const std::vector<std::string> hosts{"127.0.0.1", "127.0.0.2", "127.0.0.3"};
  const int port = test::free_port();
  std::atomic<int> changes{0};  // of the leader, two lines for each
  std::vector<std::unique_ptr<Server>> servers;
};

v1::Join join_in_term(const std::string& run_id, std::int64_t term) {
  v1::Join join;
  join.set_run_id(run_id);
  join.set_member_id("m" + std::to_string(term));
  join.set_host("host");
  join.set_nproc(1);
  join.set_node_rank(-1);
  join.set_protocol(kRendezvousProtocol);
  join.set_min_nodes(2);
  join.set_max_nodes(2);
  join.set_group_rank(-1);
  join.set_term(term);
  return join;
}

constexpr std::int64_t kLastTerm = std::numeric_limits<std::int64_t>::max() - 1;

TEST_CASE("what a scoped token says of terms is not heard: the leader leads on, with all keys") {
  Stores stores;
  const std::string leader = stores.leader();
  REQUIRE(leader != "");
  const Speaker owner(leader, stores.port, stores.key);
  REQUIRE(owner.set("job8/a", "kept").ok());
  const int before = stores.changes;
  const Speaker guest(leader, stores.port, token_for(stores.key, "job7"));
  guest.join(join_in_term("job7", 1000), milliseconds(500));
  for (std::int64_t term = 2000; term < 2200; ++term)
    guest.join(join_in_term("job7", term), milliseconds(20));
  guest.join(join_in_term("job7", kLastTerm), milliseconds(1000));
  CHECK(stores.leader() == leader);
  CHECK(stores.changes == before);
  CHECK(owner.get("job8/a") == "kept");
}

TEST_CASE("a scoped token is not heard among the stores that choose a leader, the key is") {
  Stores stores;
  REQUIRE(stores.leader() != "");
  const Speaker member(stores.hosts[0], stores.port, stores.key);
  CHECK(member.ask_for_vote(0).ok());
  const Speaker guest(stores.hosts[0], stores.port, token_for(stores.key, "job7"));
  const grpc::Status refused = guest.ask_for_vote(0);
  CHECK(refused.error_code() == grpc::StatusCode::PERMISSION_DENIED);
  CHECK(contains(refused.error_message(), "scoped token for run job7"));
}

TEST_CASE("a member that lies about terms deposes a leader that leads again at once, with all keys") {
  Stores stores;
  bool kept = false;
  // On a busy machine another one may be faster, and begins with none.
  for (int times = 0; times < 5 && !kept; ++times) {
    const std::string leader = stores.leader();
    REQUIRE(leader != "");
    REQUIRE(Speaker(leader, stores.port, stores.key).set("job8/a", "kept").ok());
    const int before = stores.changes;
    for (const std::int64_t term : {std::int64_t{1000}, kLastTerm, kLastTerm})
      Speaker(stores.leader(), stores.port, stores.key).join(join_in_term("job7", term), milliseconds(500));
    CHECK(stores.changes > before);
    kept = Speaker(stores.leader(), stores.port, stores.key).get("job8/a") == "kept";
  }
  CHECK(kept);
}

}  // namespace
}  // namespace dtrun::rendezvous
