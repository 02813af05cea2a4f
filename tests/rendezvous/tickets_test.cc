// Tickets of a store, over real sockets: each opens its run, and neither another one nor the way to pose as
// the store.
#include <doctest/doctest.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <ctime>

#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/client/status_client.h"
#include "rendezvous/identity/ticket.h"
#include "tests/rendezvous/test_agent.h"

namespace dtrun::rendezvous {
namespace {

Ticket ticket_for(const JobKey& store, const std::string& run_id, std::int64_t seconds = 3600) {
  return Ticket::issue(store, run_id, std::time(nullptr) + seconds);
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

// A store at which job8 runs, for somebody with the key, and job7 with a ticket.
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
  const Credential ticket = ticket_for(key, "job7");
  TestAgent owner{"owner", "127.0.0.1", server->port(), milliseconds(15000), key};
  TestAgent guest{"guest", "127.0.0.1", server->port(), milliseconds(15000), ticket};
};

TEST_CASE("a ticket opens its run: agents join, use the store and ask for the status") {
  Site site;
  CHECK(site.guest.kv(request_of(control::KvRequest::SET, "b"), "job7/1/").ok());
  CHECK(site.guest.kv(request_of(control::KvRequest::GET), "job7/1/").value() == "b");
  for (const std::string run_id : {"", "job7"}) {
    const auto status =
        fetch_status("127.0.0.1", site.server->port(), run_id, milliseconds(5000), site.ticket);
    REQUIRE_MESSAGE(status.ok(), status.status().message());
    REQUIRE(status.value().runs_size() == 1);
    CHECK(status.value().runs(0).run_id() == "job7");
  }
  const auto all = fetch_status("127.0.0.1", site.server->port(), "", milliseconds(5000), site.key);
  REQUIRE(all.ok());
  CHECK(all.value().runs_size() == 2);
}

TEST_CASE("a ticket opens no other run") {
  Site site;
  const int port = site.server->port();
  TestAgent intruder("intruder", "127.0.0.1", port, milliseconds(15000), site.ticket);
  intruder.join(settings_of("job8"));
  const auto refused = intruder.hear(v1::FromCoordinator::kRejected);
  REQUIRE(refused.has_value());
  CHECK(refused->rejected().reason() == v1::Rejected::NOT_PERMITTED);
  CHECK(contains(refused->rejected().message(), "ticket for run job7"));
  CHECK(site.server->members() == 2);

  for (const auto op : {control::KvRequest::SET, control::KvRequest::GET, control::KvRequest::ADD,
                        control::KvRequest::COMPARE_AND_SET, control::KvRequest::DELETE}) {
    for (const std::string prefix : {"job8/1/", "job77/1/", ""}) {
      const control::KvReply reply = site.guest.kv(request_of(op, "forged"), prefix);
      CAPTURE(op);
      CHECK(!reply.ok());
      CHECK(contains(reply.error(), "ticket for run job7"));
      CHECK(reply.value().empty());
    }
  }
  CHECK(site.owner.kv(request_of(control::KvRequest::GET), "job8/1/").value() == "secret");

  const auto status = fetch_status("127.0.0.1", port, "job8", milliseconds(5000), site.ticket);
  REQUIRE(!status.ok());
  CHECK(status.status().exit_code() == kExitNoPermission);
  CHECK(contains(status.status().message(), "ticket for run job7"));
  const EndOfRun end("127.0.0.1", port, "job8", site.ticket);
  const auto patience = std::chrono::steady_clock::now() + kPatience;
  while (!end.broken() && std::chrono::steady_clock::now() < patience) usleep(10000);
  CHECK(end.broken());
}

TEST_CASE("a ticket of another store is another key") {
  const JobKey here = JobKey::random(), there = JobKey::random();
  const auto server = start_store(here);
  const auto status = fetch_status("127.0.0.1", server->port(), "", milliseconds(5000),
                                   Credential(ticket_for(there, "job7")));
  REQUIRE(!status.ok());
  CHECK(status.status().exit_code() == kExitNoPermission);
  CHECK(contains(status.status().message(), here.fingerprint()));
  CHECK(contains(status.status().message(), there.fingerprint()));
}

TEST_CASE("a ticket that has ended by the store's clock is refused at once, and the reason told") {
  const JobKey key = JobKey::random();
  const auto server = start_store(key);
  const Credential ended = ticket_for(key, "job7", -60);
  TestAgent late("late", "127.0.0.1", server->port(), milliseconds(15000), ended);
  REQUIRE(late.next<Opened>().has_value());
  late.send({});
  const auto refusal = late.next<Disconnected>(milliseconds(3000));
  REQUIRE(refusal.has_value());
  CAPTURE(refusal->why.message());
  CHECK(refusal->permanent);
  CHECK(refusal->why.exit_code() == kExitNoPermission);
  CHECK(contains(refusal->why.message(), "the ticket for run job7 ended at 20"));
  CHECK(!contains(refusal->why.message(), ended.text()));
  const auto status = fetch_status("127.0.0.1", server->port(), "", milliseconds(5000), ended);
  REQUIRE(!status.ok());
  CHECK(contains(status.status().message(), "the ticket for run job7 ended at 20"));
}

// Answers whatever is asked, and counts.
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

TEST_CASE("who has a ticket cannot pose as the store, neither to others nor to other guests") {
  const JobKey key = JobKey::random();
  // A run may have the name that clients look for in certificates.
  Impostor impostor(ticket_for(key, "dtrun").identity());
  for (const Credential& who : {Credential(key), Credential(ticket_for(key, "dtrun"))}) {
    const auto status = fetch_status("127.0.0.1", impostor.port, "", milliseconds(5000), who);
    CHECK(!status.ok());
  }
  CHECK(impostor.asked == 0);
  Impostor member(make_identity(key));  // so that the above can fail
  CHECK(fetch_status("127.0.0.1", member.port, "", milliseconds(5000), key).ok());
  CHECK(member.asked == 1);
}

}  // namespace
}  // namespace dtrun::rendezvous
