// The coordinator behind real sockets: real server and clients over loopback.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/client/status_client.h"
#include "rendezvous/core/store.h"
#include "tests/rendezvous/test_agent.h"
#include "tests/support/ports.h"
#include "tests/support/process.h"
#include "tests/support/relay.h"

namespace dtrun::rendezvous::service_test {
namespace {

using From = v1::FromCoordinator;
using test::eventually;

v1::FromAgent finished() {
  v1::FromAgent message;
  message.mutable_finished();
  return message;
}

v1::FromAgent leave() {
  v1::FromAgent message;
  message.mutable_leave();
  return message;
}

control::KvRequest request(control::KvRequest::Op op, const std::string& key, const std::string& value = "") {
  control::KvRequest request;
  request.set_id(7);
  request.set_op(op);
  request.set_key(key);
  request.set_value(value);
  return request;
}

// A TCP listener on a free loopback port that is no coordinator.
class Listener {
 public:
  Listener() : fd_(test::bound_to(0)) { REQUIRE(listen(fd_, 8) == 0); }
  ~Listener() {
    shutdown(fd_, SHUT_RDWR);  // ends accept()
    if (thread_.joinable()) thread_.join();
    close(fd_);
  }

  // Answers each connection with the same words and hangs up.
  void answer_with(const std::string& words) {
    thread_ = std::thread([this, words] {
      for (int peer; (peer = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0; close(peer)) {
        char heard[64];
        if (recv(peer, heard, sizeof heard, 0) > 0) send(peer, words.data(), words.size(), MSG_NOSIGNAL);
        shutdown(peer, SHUT_WR);
      }
    });
  }
  int port() const { return test::port_of(fd_); }

 private:
  const int fd_;
  std::thread thread_;
};

std::vector<std::string> descriptors_that_survive_exec() {
  std::vector<std::string> surviving;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fdinfo")) {
    std::ifstream info(entry.path());
    for (std::string line; std::getline(info, line);)
      if (line.starts_with("flags:") && (std::stoi(line.substr(6), nullptr, 8) & O_CLOEXEC) == 0)
        surviving.push_back(entry.path().filename());
  }
  std::sort(surviving.begin(), surviving.end());
  return surviving;
}

std::size_t resident_bytes() {
  std::size_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

TEST_CASE("two agents join, finish and leave") {
  const auto server = start_server();
  RunSettings run;
  run.min_nodes = run.max_nodes = 2;
  TestAgent a("a", "127.0.0.1", server->port());
  TestAgent b("b", "localhost", server->port());
  a.join(run, 1);
  REQUIRE(a.hear(From::kWaitStatus));
  b.join(run, 2);
  const auto join_ack = b.hear(From::kJoinAck);
  REQUIRE(join_ack);
  CHECK(join_ack->join_ack().address() == "127.0.0.1");
  const auto first = a.hear(From::kAssignment);
  const auto second = b.hear(From::kAssignment);
  REQUIRE(first);
  REQUIRE(second);
  CHECK(first->generation() == 1);
  CHECK(first->assignment().group_rank() == 0);
  CHECK(second->assignment().group_rank() == 1);
  CHECK(second->assignment().world_size() == 3);
  CHECK(second->assignment().node().first_rank() == 1);
  CHECK(second->assignment().master_address() == "127.0.0.1");
  CHECK(second->assignment().master_port() == 12345);
  a.send(finished());
  b.send(finished());
  for (TestAgent* agent : {&a, &b}) {
    const auto end = agent->hear(From::kJobEnd);
    REQUIRE(end);
    CHECK(end->job_end().exit_code() == 0);
  }
  CHECK(server->members() == 2);
  b.send(leave());
  b.client().close(kPatience);
  CHECK(eventually([&] { return server->members() == 1; }));
}

TEST_CASE(
    "who waits for a run's end is told of it when it comes, and the server knows until that is written") {
  const auto server = start_server();
  const auto ends = [&](const std::string& run) {
    return std::make_unique<EndOfRun>("127.0.0.1", server->port(), run);
  };
  TestAgent agent("a", "127.0.0.1", server->port());
  agent.join(RunSettings{});
  REQUIRE(agent.hear(From::kAssignment));
  const auto waiting = ends("test"), unknown = ends("other");
  auto given_up = ends("test");
  REQUIRE(eventually([&] { return server->waiters() == 2 && unknown->broken(); }));
  CHECK_FALSE(waiting->wait_for(milliseconds(50)));
  CHECK_FALSE(waiting->broken());
  given_up.reset();
  CHECK(eventually([&] { return server->waiters() == 1; }));
  agent.send(finished());
  const auto end = waiting->wait_for(kPatience);
  REQUIRE(end);
  CHECK(end->phase() == v1::RunStatus::OVER);
  CHECK(end->run_id() == "test");
  CHECK(eventually([&] { return server->waiters() == 0; }));
  CHECK(ends("test")->wait_for(kPatience));  // over already
}

TEST_CASE("a server that goes without a word breaks the wait for a run's end") {
  auto server = start_server();
  TestAgent agent("a", "127.0.0.1", server->port());
  agent.join(RunSettings{});
  REQUIRE(agent.hear(From::kAssignment));
  EndOfRun end("127.0.0.1", server->port(), "test");
  REQUIRE(eventually([&] { return server->waiters() == 1; }));
  server.reset();
  CHECK(eventually([&] { return end.broken(); }));
  CHECK_FALSE(end.wait_for(milliseconds(0)));
}

TEST_CASE("fifty agents get fifty different ranks") {
  const auto server = start_server();
  RunSettings run;
  run.min_nodes = run.max_nodes = 50;
  std::vector<std::unique_ptr<TestAgent>> agents;
  for (int i = 0; i < run.max_nodes; ++i)
    agents.push_back(std::make_unique<TestAgent>(std::to_string(i), "127.0.0.1", server->port()));
  for (auto& agent : agents) agent->join(run);
  std::vector<bool> taken(50, false);
  for (auto& agent : agents) {
    const auto assignment = agent->hear(From::kAssignment);
    REQUIRE(assignment);
    const int rank = assignment->assignment().group_rank();
    CHECK_FALSE(taken.at(rank));
    taken.at(rank) = true;
    CHECK(assignment->assignment().node_count() == 50);
  }
}

TEST_CASE("a broken stream stops the others at once, long before any heartbeat is missed") {
  const auto server = start_server();
  RunSettings run;
  run.min_nodes = 1;
  run.max_nodes = 2;
  TestAgent a("a", "127.0.0.1", server->port());
  TestAgent b("b", "127.0.0.1", server->port());
  a.join(run);
  b.join(run);
  REQUIRE(a.hear(From::kAssignment));
  REQUIRE(b.hear(From::kAssignment));
  b.kill();
  const auto stop = a.hear(From::kStop);
  REQUIRE(stop);
  CHECK(stop->stop().reason() == "host-b lost its connection");
  v1::FromAgent stopped;
  stopped.mutable_stopped();
  a.send(stopped);
  const auto next = a.hear(From::kAssignment);
  REQUIRE(next);
  CHECK(next->generation() == 2);
  CHECK(next->assignment().world_size() == 1);
  CHECK(next->assignment().restart_count() == 0);
}

TEST_CASE("an agent that falls silent is taken out after the heartbeat timeout, one that beats is not") {
  const auto server = start_server();
  RunSettings run;
  run.max_nodes = 2;
  run.heartbeat_timeout_ms = test::soon(milliseconds(1500)).count();
  TestAgent a("a", "127.0.0.1", server->port());
  TestAgent b("b", "127.0.0.1", server->port());
  a.join(run);
  b.join(run);
  REQUIRE(a.hear(From::kAssignment));
  REQUIRE(b.hear(From::kAssignment));
  std::optional<From> stop;
  for (const test::Patience patience(kPatience); !stop && !patience.is_over();) {
    v1::FromAgent beat;
    beat.mutable_heartbeat();
    a.send(beat);
    stop = a.hear(From::kStop, milliseconds(50));
  }
  REQUIRE(stop);
  CHECK(stop->stop().reason() == "host-b was silent for 1.5 s");
  CHECK(b.next<Disconnected>());
}

TEST_CASE("a coordinator that falls silent is noticed after the heartbeat timeout, and found again later") {
  const auto server = start_server();
  test::Relay relay(server->port());
  TestAgent a("a", "127.0.0.1", relay.port(), test::soon(milliseconds(1500)));
  a.join({});
  REQUIRE(a.hear(From::kAssignment));
  CHECK_FALSE(a.next<Disconnected>(milliseconds(3500)));  // it says nothing, but it answers
  const test::Stopwatch cut;
  relay.freeze();
  const auto lost = a.next<Disconnected>();
  const auto noticed = cut.fair();
  REQUIRE(lost);
  CHECK(lost->why.message().ends_with("(silent for 2 s)"));
  CHECK(lost->silent);
  CHECK(noticed < milliseconds(4000));
  relay.thaw();
  CHECK(a.rejoin());
}

TEST_CASE("a connection that is reset is made again at once") {
  const auto server = start_server();
  test::Relay relay(server->port());
  TestAgent a("a", "127.0.0.1", relay.port());
  a.join({});
  REQUIRE(a.hear(From::kAssignment));
  relay.reset();
  const auto lost = a.next<Disconnected>();
  REQUIRE(lost);
  CHECK(lost->attempt == 1);
  CHECK(a.rejoin(milliseconds(1000)));
}

TEST_CASE("an agent that dies in the moment of its Join leaves nobody behind") {
  const auto server = start_server();
  RunSettings run;
  run.max_nodes = 100;
  for (int i = 0; i < 300; ++i) {
    TestAgent agent(std::to_string(i), "127.0.0.1", server->port());
    agent.join(run);
    // From before the Join is read to after it is answered.
    std::this_thread::sleep_for(std::chrono::microseconds(i * 5));
    agent.kill();
  }
  CHECK(eventually([&] { return server->members() == 0; }));
}

TEST_CASE("a run ends with the agent in whose process it is coordinated, not with one that only says so") {
  const auto server = start_server(ServerOptions{.bind_address = "127.0.0.1", .host = "a"});
  TestAgent a("a", "127.0.0.1", server->port()), b("b", "127.0.0.1", server->port());
  TestAgent c("c", "127.0.0.1", server->port());
  RunSettings run;
  run.min_nodes = run.max_nodes = 4;
  run.hosts = true;
  for (TestAgent* agent : {&a, &b, &c}) {
    agent->join(run);
    REQUIRE(agent->hear(From::kJoinAck));
  }
  b.send(leave());
  CHECK(c.hear(From::kNews).value().news().text() == "host-b left");
  a.send(leave());
  CHECK(c.hear(From::kJobEnd).value().job_end().reason() == "host-a, which hosts the coordinator, left");
}

TEST_CASE("close() flushes Leave, so that nobody takes a leaving agent for a lost one") {
  const auto server = start_server();
  RunSettings run;
  run.max_nodes = 2;
  TestAgent a("a", "127.0.0.1", server->port());
  TestAgent b("b", "127.0.0.1", server->port());
  a.join(run);
  b.join(run);
  REQUIRE(a.hear(From::kAssignment));
  REQUIRE(b.hear(From::kAssignment));
  v1::FromAgent message = leave();
  message.mutable_leave()->set_signal(15);
  b.send(message);
  b.client().close(kPatience);
  const auto stop = a.hear(From::kStop);
  REQUIRE(stop);
  CHECK(stop->stop().reason() == "host-b left (told to by SIGTERM)");
}

TEST_CASE("an agent of another run is refused and its stream ended") {
  const auto server = start_server();
  TestAgent a("a", "127.0.0.1", server->port());
  TestAgent b("b", "127.0.0.1", server->port());
  RunSettings run;
  run.max_nodes = 2;
  a.join(run);
  REQUIRE(a.hear(From::kJoinAck));
  run.run_id = "other";
  b.join(run);
  const auto rejected = b.hear(From::kRejected);
  REQUIRE(rejected);
  CHECK(rejected->rejected().reason() == v1::Rejected::OTHER_RUN);
  CHECK(b.next<Disconnected>());
}

TEST_CASE(
    "an agent of another build is refused with both versions and the way out, and the others are told") {
  const auto server = start_server();
  TestAgent a("a", "127.0.0.1", server->port());
  TestAgent b("b", "127.0.0.1", server->port());
  RunSettings run;
  run.min_nodes = run.max_nodes = 2;
  a.join(run);
  REQUIRE(a.hear(From::kJoinAck));
  run.protocol = 0;  // as builds send that have none
  b.join(run);
  const auto rejected = b.hear(From::kRejected);
  REQUIRE(rejected);
  CHECK(rejected->rejected().reason() == v1::Rejected::OTHER_PROTOCOL);
  CHECK(rejected->rejected().message() ==
        "this agent is of another version of dtrun than the coordinator (rendezvous protocol 0, and " +
            std::to_string(kRendezvousProtocol) +
            " there): install both from one build, and start a `dtrun store` of an older one again");
  CHECK(b.next<Disconnected>());
  const auto news = a.hear(From::kNews);
  REQUIRE(news);
  CHECK(news->news().text() ==
        "host-b was refused: it is of another version of dtrun (rendezvous protocol 0, and " +
            std::to_string(kRendezvousProtocol) + " here)");
}

TEST_CASE("store operations work under their prefix") {
  const auto server = start_server();
  TestAgent a("a", "127.0.0.1", server->port());
  a.join({});
  using Op = control::KvRequest;
  const auto unset = a.kv(request(Op::GET, "key"));
  CHECK_FALSE(unset.ok());
  CHECK(unset.error() == "store: no key g1/key");
  CHECK(a.kv(request(Op::SET, "key", std::string("a\0b", 3))).ok());
  CHECK(a.kv(request(Op::GET, "key")).value() == std::string("a\0b", 3));
  CHECK_FALSE(a.kv(request(Op::GET, "key"), "g2/").ok());
  CHECK(a.kv(request(Op::GET, "key")).id() == 7);
}

TEST_CASE("a worker that floods the store is refused, and the process that has the store stays small") {
  const auto server = start_server();
  TestAgent a("a", "127.0.0.1", server->port());
  a.join({});
  using Op = control::KvRequest;
  CHECK(a.kv(request(Op::SET, "mine", "kept")).ok());
  const KeyValueStore::Limits limits;
  const std::size_t size = 900'000, offered = 200;
  const std::size_t before = resident_bytes();
  std::size_t taken = 0;
  std::string refusal;
  for (std::size_t i = 0; i < offered; ++i) {
    const auto reply = a.kv(request(Op::SET, "flood/" + std::to_string(i), std::string(size, 'x')));
    if (reply.ok())
      ++taken;
    else
      refusal = reply.error();
  }
  CHECK(taken == limits.total / size);
  CHECK(refusal == "store: key g1/flood/199 does not fit: the store holds its 32 MiB already");
  CHECK(resident_bytes() - before < limits.total + (std::size_t{64} << 20));
  CHECK(a.kv(request(Op::GET, "mine")).value() == "kept");

  const auto large = a.kv(request(Op::SET, "large", std::string(std::size_t{2} << 20, 'x')));
  CHECK(large.error() ==
        "store: key g1/large with its value is over 1 MiB; the store is for addresses and ids, send data "
        "between the workers");
  const auto huge = a.kv(request(Op::SET, "huge", std::string(std::size_t{100} << 20, 'x')));
  CHECK(huge.error().find("larger than max") != std::string::npos);
  auto never = request(Op::GET, std::string(std::size_t{2} << 20, 'x'));
  never.set_timeout_ms(86'400'000);  // a key that cannot come is not waited for
  CHECK(a.kv(never).error().find("is over 1 MiB") != std::string::npos);
  CHECK(a.kv(request(Op::GET, "mine")).value() == "kept");
}

TEST_CASE("a get waits for the key, or until its time is up") {
  const auto server = start_server();
  TestAgent a("a", "127.0.0.1", server->port());
  TestAgent b("b", "127.0.0.1", server->port());
  RunSettings run;
  run.max_nodes = 2;
  a.join(run);
  b.join(run);
  auto get = request(control::KvRequest::GET, "late");
  get.set_timeout_ms(kPatience.count());
  a.client().kv(3, "p/", get);
  CHECK(b.kv(request(control::KvRequest::SET, "late", "here"), "p/").ok());
  const auto done = a.next<KvDone>();
  REQUIRE(done);
  CHECK(done->worker_serial == 3);
  CHECK(done->reply.value() == "here");
  get.set_key("absurdly late");  // a wait beyond the clock's end is a long one
  get.set_timeout_ms(std::numeric_limits<std::int64_t>::max());
  a.client().kv(3, "p/", get);
  CHECK(b.kv(request(control::KvRequest::SET, "absurdly late", "here too"), "p/").ok());
  const auto late = a.next<KvDone>();
  REQUIRE(late);
  CHECK(late->reply.value() == "here too");
  get.set_key("never");
  get.set_timeout_ms(30);
  const auto reply = a.kv(get, "p/");
  CHECK_FALSE(reply.ok());
  CHECK(reply.error() == "store: key p/never was not set within 30 ms");
}

TEST_CASE("a get that waits when the store is restarted is asked again, and what was set is set again") {
  const ServerOptions options{.bind_address = "127.0.0.1", .port = test::free_port()};
  auto server = start_server(options);
  TestAgent a("a", "127.0.0.1", options.port);
  TestAgent b("b", "127.0.0.1", options.port);
  RunSettings run;
  run.min_nodes = run.max_nodes = 2;
  a.join(run);
  b.join(run);
  REQUIRE(a.hear(From::kAssignment));
  REQUIRE(b.hear(From::kAssignment));
  auto get = request(control::KvRequest::GET, "late");
  get.set_timeout_ms(kPatience.count());
  a.client().kv(3, "p/", get);
  CHECK(b.kv(request(control::KvRequest::SET, "early", "kept"), "p/").ok());  // so the get is under way
  server.reset();
  server = start_server(options);
  a.join(run);
  b.join(run);
  REQUIRE(b.hear(From::kJoinAck));
  get.set_key("early");
  a.client().kv(4, "p/", get);
  auto done = a.next<KvDone>();
  REQUIRE(done);
  CHECK(done->worker_serial == 4);
  CHECK(done->reply.value() == "kept");
  CHECK(b.kv(request(control::KvRequest::SET, "late", "here"), "p/").ok());
  done = a.next<KvDone>();
  REQUIRE(done);
  CHECK(done->worker_serial == 3);
  CHECK(done->reply.value() == "here");
}

TEST_CASE("a client reconnects by itself when the coordinator comes back") {
  const ServerOptions options{.bind_address = "127.0.0.1", .port = test::free_port()};
  auto server = start_server(options);
  TestAgent a("a", "127.0.0.1", options.port);
  a.join({});
  REQUIRE(a.next<Connected>());
  server.reset();
  const auto lost = a.next<Disconnected>();
  REQUIRE(lost);
  CHECK(lost->attempt == 1);
  CHECK_FALSE(lost->silent);
  CHECK_FALSE(lost->refused);
  CHECK(lost->why.message().find("127.0.0.1:" + std::to_string(options.port)) != std::string::npos);
  const auto refused = a.next<Disconnected>();
  REQUIRE(refused);
  CHECK_FALSE(refused->permanent);
  CHECK(refused->refused);
  CHECK(refused->attempt == 2);
  server = start_server(options);
  const auto opened = a.next<Opened>();
  REQUIRE(opened);
  CHECK(opened->local_address == "127.0.0.1");
}

TEST_CASE("nobody there yet is no permanent failure, and says so") {
  TestAgent a("a", "127.0.0.1", test::free_port());
  const auto failure = a.next<Disconnected>();
  REQUIRE(failure);
  CHECK_FALSE(failure->permanent);
  CHECK(failure->why.exit_code() == kExitUnavailable);
  CHECK(failure->why.message().find("Connection refused") != std::string::npos);
  CHECK(a.next<Disconnected>());  // tries again
}

TEST_CASE("a web server on the endpoint is told from a coordinator") {
  Listener listener;
  listener.answer_with("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
  TestAgent a("a", "127.0.0.1", listener.port());
  const auto failure = a.next<Disconnected>();
  REQUIRE(failure);
  CHECK(failure->permanent);
  CHECK(failure->why.message().find("something else than a dtrun coordinator") != std::string::npos);
}

TEST_CASE("something that accepts and says nothing is told from a coordinator that stands still") {
  const auto server = start_server();
  test::Relay relay(server->port());
  relay.freeze();
  Listener listener;
  // A coordinator that ten thousand join at once needs some seconds; kPatience is the other side.
  CHECK(Times().answer >= milliseconds(10000));
  const Times times{.answer = test::soon(milliseconds(1500))};
  const test::Stopwatch watch;
  TestAgent a("a", "127.0.0.1", listener.port(), milliseconds(15000), {}, {}, times);
  TestAgent b("b", "127.0.0.1", relay.port(), milliseconds(15000), {}, {}, times);
  for (TestAgent* agent : {&a, &b}) {
    const auto failure = agent->next<Disconnected>();
    REQUIRE(failure);
    CHECK_FALSE(failure->permanent);
    CHECK(failure->why.message().find("says nothing") != std::string::npos);
    CHECK(watch.wall() >= times.answer);
  }
  relay.thaw();
  b.join({});
  CHECK(b.hear(From::kAssignment));
  const auto failure = a.next<Disconnected>();
  REQUIRE(failure);
  CHECK(failure->permanent);
  CHECK(failure->why.message().find("something else than a dtrun coordinator") != std::string::npos);
}

TEST_CASE("a name that does not resolve is named") {
  TestAgent a("a", "nosuch.invalid", 29400);
  const auto failure = a.next<Disconnected>();
  REQUIRE(failure);
  CHECK_FALSE(failure->permanent);  // only once it stays unknown
  CHECK(failure->why.message().find("nosuch.invalid") != std::string::npos);
}

TEST_CASE("a name that stays unknown is given up after the time for it, which may be none") {
  ClientOptions options{.host = "nosuch.invalid", .port = 29400};
  options.times.unknown_name = std::chrono::milliseconds(1);
  TestAgent once("a", options);
  options.times.unknown_name = Times::Duration::max();
  TestAgent always("a", options);
  auto given_up = once.next<Disconnected>();
  while (given_up && !given_up->permanent) given_up = once.next<Disconnected>();
  CHECK(given_up);
  for (int i = 0; i < 4; ++i) {
    const auto failure = always.next<Disconnected>();
    REQUIRE(failure);
    CHECK_FALSE(failure->permanent);
  }
}

TEST_CASE("a taken port is refused with its name, even if it is another coordinator's") {
  const auto server = start_server();
  const auto second = Server::start({.bind_address = "127.0.0.1", .port = server->port()});
  REQUIRE_FALSE(second.ok());
  CHECK(second.status().exit_code() == kExitUnavailable);
  CHECK(second.status().message().find("127.0.0.1:" + std::to_string(server->port())) != std::string::npos);
  CHECK(second.status().message().find("Address already in use") != std::string::npos);
}

TEST_CASE("every descriptor is closed on exec: workers inherit none") {
  const std::vector<std::string> before = descriptors_that_survive_exec();
  const auto server = start_server();
  TestAgent a("a", "127.0.0.1", server->port());
  a.join({});
  REQUIRE(a.next<Connected>());
  CHECK(descriptors_that_survive_exec() == before);
}

}  // namespace dtrun::rendezvous::service_test
