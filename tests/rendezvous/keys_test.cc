// A coordinator with a job's key, over real sockets: a client with the key is admitted, one without is told
// so at once, and nobody on the way can read the traffic. What an agent says is made harmless.
#include <doctest/doctest.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <mutex>
#include <random>
#include <set>

#include "rendezvous/client/status_client.h"
#include "rendezvous/identity/identity.h"
#include "rendezvous/wire/intake.h"
#include "tests/rendezvous/test_agent.h"
#include "tests/support/files.h"
#include "tests/support/ports.h"
#include "tests/support/process.h"
#include "tests/support/relay.h"

namespace dtrun::rendezvous::keys_test {
namespace {

using test::contains;
using test::eventually;
using test::Stopwatch;

const std::string kPreface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);

// How a client ends that is not let in, and how long it took.
struct Refusal {
  std::string why;
  int exit_code = 0;
  bool permanent = false;
  std::chrono::nanoseconds after{0};
};

Refusal refusal_of(TestAgent& agent) {
  const Stopwatch watch;
  const auto end = agent.next<Disconnected>();
  REQUIRE(end.has_value());
  return {.why = end->why.message(),
          .exit_code = end->why.exit_code(),
          .permanent = end->permanent,
          .after = watch.fair()};
}

int connect_to(int port) {
  const int fd = test::connected_to(port);
  REQUIRE(fd >= 0);
  return fd;
}

TEST_CASE("agents that have the key meet, use the store and ask for the status") {
  for (const char* const address : {"127.0.0.1", "::1"}) {
    const JobKey key = JobKey::random();
    const auto server = start_server(address, key);
    TestAgent one("one", address, server->port(), milliseconds(15000), key);
    TestAgent two("two", address, server->port(), milliseconds(15000), key);
    RunSettings run;
    run.min_nodes = run.max_nodes = 2;
    one.join(run);
    two.join(run);
    CHECK(one.hear(v1::FromCoordinator::kAssignment).has_value());
    CHECK(two.hear(v1::FromCoordinator::kAssignment).has_value());
    control::KvRequest set;
    set.set_op(control::KvRequest::SET);
    set.set_key("a");
    set.set_value("b");
    CHECK(one.kv(set).error().empty());
    const auto status = fetch_status(address, server->port(), "", milliseconds(5000), key);
    REQUIRE_MESSAGE(status.ok(), status.status().message());
    CHECK(status.value().runs_size() == 1);
  }
}

TEST_CASE("another key, none, or one too many: within a second, for good, and both keys are named") {
  const JobKey key = JobKey::random(), other = JobKey::random();
  const auto locked = start_server("127.0.0.1", key), open = start_server();
  TestAgent wrong("wrong", "127.0.0.1", locked->port(), milliseconds(15000), other);
  TestAgent without("without", "127.0.0.1", locked->port());
  TestAgent with("with", "127.0.0.1", open->port(), milliseconds(15000), other);
  for (TestAgent* const agent : {&wrong, &without, &with}) {
    REQUIRE(agent->next<Opened>().has_value());
    agent->send({});
  }
  const Refusal wrong_key = refusal_of(wrong);
  CHECK(contains(wrong_key.why, key.fingerprint()));
  CHECK(contains(wrong_key.why, other.fingerprint()));
  const Refusal no_key = refusal_of(without);
  CHECK(contains(no_key.why, "wants the job key " + key.fingerprint()));
  const Refusal plain = refusal_of(with);
  CHECK(contains(plain.why, "--insecure"));
  for (const Refusal& refusal : {wrong_key, no_key, plain}) {
    CAPTURE(refusal.why);
    CHECK(refusal.exit_code == kExitNoPermission);
    CHECK(refusal.permanent);
    CHECK(refusal.after < milliseconds(1000));
    CHECK(!contains(refusal.why, key.text()));
    CHECK(!contains(refusal.why, other.text()));
  }
  for (const auto& asked : {std::optional<JobKey>(), std::optional<JobKey>(other)}) {
    const auto status = fetch_status("127.0.0.1", locked->port(), "", milliseconds(5000), asked);
    REQUIRE(!status.ok());
    CHECK(status.status().exit_code() == kExitNoPermission);
  }
  CHECK(locked->members() == 0);
}

TEST_CASE("who listens on the way reads the job in the clear without a key, and nothing with one") {
  RunSettings run;
  run.job = "the config of a secret model";
  for (const auto& key : {std::optional<JobKey>(), std::optional<JobKey>(JobKey::random())}) {
    const auto server = start_server("127.0.0.1", key);
    test::Relay relay(server->port());
    TestAgent agent("agent", "127.0.0.1", relay.port(), milliseconds(15000), key);
    agent.join(run);
    REQUIRE(agent.hear(v1::FromCoordinator::kAssignment).has_value());
    CHECK(relay.passed().size() > 500);
    CHECK(contains(relay.passed(), run.job) == !key);
    CHECK(contains(relay.passed(), "host-agent") == !key);
    // A cut connection is made again.
    relay.reset();
    CHECK(agent.rejoin());
    if (key) CHECK(!contains(relay.passed(), key->text()));
  }
}

struct Heard {
  std::string bytes;
  int tickets = 0;  // with which a TLS session could be resumed
  bool hung_up = false;
};

// The answer to a client that trusts every server, and shows `identity`'s certificate or none. `version`: the
// newest of TLS that it speaks. It stays for `seconds` if the server does not hang up before.
Heard heard_by(int port, const std::optional<Identity>& identity, int version = TLS1_3_VERSION,
               int seconds = 0) {
  Heard heard;
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  SSL_CTX_free);
  SSL_CTX_clear_options(context.get(), SSL_OP_NO_TLSv1_2);  // set_up_tls() is this process', too
  SSL_CTX_set_max_proto_version(context.get(), version);
  if (identity) {
    const auto memory = [](const std::string& pem) {
      return std::unique_ptr<BIO, decltype(&BIO_free_all)>(
          BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free_all);
    };
    X509* const certificate =
        PEM_read_bio_X509(memory(identity->certificate).get(), nullptr, nullptr, nullptr);
    EVP_PKEY* const key =
        PEM_read_bio_PrivateKey(memory(identity->private_key).get(), nullptr, nullptr, nullptr);
    REQUIRE(SSL_CTX_use_certificate(context.get(), certificate) == 1);
    REQUIRE(SSL_CTX_use_PrivateKey(context.get(), key) == 1);
    X509_free(certificate);
    EVP_PKEY_free(key);
  }
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_CLIENT);
  SSL_CTX_sess_set_new_cb(context.get(), [](SSL* session, SSL_SESSION*) {
    ++static_cast<Heard*>(SSL_get_app_data(session))->tickets;
    return 0;
  });
  const std::unique_ptr<SSL, decltype(&SSL_free)> session(SSL_new(context.get()), SSL_free);
  SSL_set_app_data(session.get(), &heard);
  static constexpr unsigned char kProtocols[] = {2, 'h', '2'};
  SSL_set_alpn_protos(session.get(), kProtocols, sizeof kProtocols);
  const int fd = connect_to(port);
  SSL_set_fd(session.get(), fd);
  if (SSL_connect(session.get()) == 1) {
    char bytes[256];
    SSL_write(session.get(), kPreface.data(), static_cast<int>(kPreface.size()));
    const int got = SSL_read(session.get(), bytes, sizeof bytes);
    if (got > 0) heard.bytes.assign(bytes, static_cast<std::size_t>(got));
    const timeval limit{seconds, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    errno = 0;
    while (seconds > 0 && SSL_read(session.get(), bytes, sizeof bytes) > 0) {
    }
    heard.hung_up = seconds > 0 && errno != EAGAIN;
  }
  close(fd);
  return heard;
}

TEST_CASE("who believes every server and has no key, or another, hears not a byte of HTTP/2") {
  signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to a connection that is closed
  const JobKey key = JobKey::random();
  const auto server = start_server("127.0.0.1", key);
  CHECK(heard_by(server->port(), std::nullopt).bytes.empty());
  CHECK(heard_by(server->port(), make_identity(JobKey::random())).bytes.empty());
}

TEST_CASE(
    "who has the key hears HTTP/2 over TLS 1.3 alone, and gets no ticket with which to come in without it") {
  const JobKey key = JobKey::random();
  const auto server = start_server("127.0.0.1", key);
  const Heard heard = heard_by(server->port(), make_identity(key));
  CHECK(!heard.bytes.empty());
  CHECK(heard.tickets == 0);
  test::Relay relay(server->port());
  CHECK(heard_by(relay.port(), make_identity(key), TLS1_2_VERSION).bytes.empty());
  CHECK(!relay.sent().empty());
}

// Sockets of this process that it has open twice.
std::size_t doubled_sockets() {
  std::multiset<std::string> sockets;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string what = std::filesystem::read_symlink(entry, error).string();
    if (what.starts_with("socket:")) sockets.insert(what);
  }
  return sockets.size() - std::set<std::string>(sockets.begin(), sockets.end()).size();
}

TEST_CASE("the gate forgets who came in at once, by whatever address") {
  const JobKey key = JobKey::random();
  for (const auto& [bound, address] :
       {std::pair{"127.0.0.1", "127.0.0.1"}, {"::", "127.0.0.1"}, {"::", "::1"}}) {
    const auto server = start_server(bound, key);
    TestAgent agent("agent", address, server->port(), milliseconds(15000), key);
    agent.join({});
    REQUIRE(agent.hear(v1::FromCoordinator::kAssignment).has_value());
    // The gate waits 5.5 s for one that says nothing.
    CHECK(eventually([] { return doubled_sockets() == 0; }, std::chrono::seconds(4)));
  }
}

TEST_CASE("on a Unix socket there is no gate, and nobody is asked for a key") {
  char folder[] = "/tmp/dtrun-test-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::string path = std::string("unix:") + folder + "/socket";
  {
    const auto server = start_server(path, JobKey::random());
    TestAgent agent("agent", path, 0);
    agent.join({});
    CHECK(agent.hear(v1::FromCoordinator::kAssignment).has_value());
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("who says nothing, or no hello, is hung up on") {
  const JobKey key = JobKey::random();
  const milliseconds hello = test::soon(milliseconds(2500));
  const auto server = start_server({.bind_address = "127.0.0.1", .key = key, .times = {.hello = hello}});
  const auto await_end = [](int fd) {
    pollfd polled{fd, POLLIN, 0};
    char byte = 0;
    CHECK(poll(&polled, 1, 60000) == 1);
    CHECK(recv(fd, &byte, 1, MSG_DONTWAIT) <= 0);
    close(fd);
  };
  const Stopwatch watch;
  const int silent = connect_to(server->port()), plain = connect_to(server->port());
  send(plain, kPreface.data(), kPreface.size(), MSG_NOSIGNAL);
  await_end(plain);
  CHECK(watch.fair() < std::chrono::seconds(2));
  await_end(silent);
  CHECK(watch.wall() >= hello);
  CHECK(watch.fair() < std::chrono::seconds(15));
}

TEST_CASE("who shows a certificate of the key and then says nothing is hung up on") {
  const JobKey key = JobKey::random();
  const milliseconds first_call = test::soon(milliseconds(2000));
  const auto server =
      start_server({.bind_address = "127.0.0.1", .key = key, .times = {.first_call = first_call}});
  const Stopwatch watch;
  CHECK(heard_by(server->port(), make_identity(key), TLS1_3_VERSION, 60).hung_up);
  CHECK(watch.fair() < std::chrono::seconds(15));
}

TEST_CASE("a run goes on while unauthenticated peers connect, talk rubbish, and stay") {
  const JobKey key = JobKey::random();
  const auto server = start_server("127.0.0.1", key);
  TestAgent agent("agent", "127.0.0.1", server->port(), milliseconds(15000), key);
  agent.join({});
  REQUIRE(agent.hear(v1::FromCoordinator::kAssignment).has_value());
  std::mt19937_64 random(7);
  std::vector<int> open;
  for (int i = 0; i < 300; ++i) {
    const int fd = connect_to(server->port());
    std::string words = i % 3 == 0 ? kPreface : std::string("\x16\x03\x01\x02\x00\x01", 6);
    for (int more = static_cast<int>(random() % 400); more > 0; --more) words += static_cast<char>(random());
    if (i % 7 != 0) send(fd, words.data(), words.size(), MSG_NOSIGNAL);
    if (i % 2 == 0)
      close(fd);
    else
      open.push_back(fd);
  }
  control::KvRequest set;
  set.set_op(control::KvRequest::SET);
  set.set_key("a");
  CHECK(agent.kv(set).error().empty());
  CHECK(server->members() == 1);
  for (const int fd : open) close(fd);
}

// As a terminal would obey it.
bool has_control_bytes(const std::string& text) {
  return text.find('\xc2') != std::string::npos || std::ranges::any_of(text, [](char c) {
           const auto byte = static_cast<unsigned char>(c);
           return (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
         });
}

TEST_CASE("what an agent calls itself neither commands a terminal nor forges a line of the store's log") {
  std::mutex mutex;
  std::string log;
  const auto server =
      Server::start({.bind_address = "127.0.0.1", .separate = true, .notice = [&](const auto& line) {
                       const std::lock_guard lock(mutex);
                       log += line + "\n";
                     }});
  REQUIRE(server.ok());
  TestAgent a(
      "\x1b]0;title\x07\x1b[2J\xc2\x9b"
      "31mhost\nrun job9: over with exit code 0",
      "127.0.0.1", server.value()->port());
  a.join({});
  REQUIRE(a.hear(v1::FromCoordinator::kAssignment));
  v1::FromAgent failed;
  v1::WorkerOutcome& outcome = *failed.mutable_failure()->mutable_outcome();
  outcome.set_host("host\x1b[31m\nrun job9: over with exit code 0");
  outcome.set_exit_code(1);
  outcome.set_error("\x1b]52;c;cm0gLXJm\x07\nrun job9: over with exit code 0");
  a.send(failed);
  const auto log_so_far = [&] {
    const std::lock_guard lock(mutex);
    return log;
  };
  REQUIRE(eventually([&] { return contains(log_so_far(), "stopping"); }));
  const std::vector<RunView> views = server.value()->look("test", {});
  REQUIRE(views.size() == 1);
  CHECK(views[0].status.members(0).host() == "host-?31mhost run job9: over with exit code 0");
  for (const std::string& text : {log_so_far(), views[0].status.members(0).host()}) {
    CAPTURE(text);
    CHECK(!has_control_bytes(text));
    CHECK(!contains("\n" + text, "\nrun job9"));
  }
}

TEST_CASE("a Join that is too long is refused") {
  const auto server = start_server();
  for (const std::size_t size : {kMostOfText - 5, kMostOfText - 4}) {  // with "host-"
    TestAgent a(std::string(size, 'x'), "127.0.0.1", server->port());
    a.join({});
    CHECK(a.hear(size + 5 > kMostOfText ? v1::FromCoordinator::kRejected : v1::FromCoordinator::kAssignment));
    a.kill();
  }
}

}  // namespace
}  // namespace dtrun::rendezvous::keys_test
