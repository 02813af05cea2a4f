#include "tests/rendezvous/flood.h"

#include <arpa/inet.h>
#include <grpcpp/create_channel.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <numeric>
#include <optional>
#include <utility>

#include "proto/core/contract.h"
#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/client/status_client.h"
#include "rendezvous/identity/identity.h"
#include "rendezvous/server/server.h"
#include "tests/support/relay.h"

namespace dtrun::test {
namespace {

using namespace dtrun::rendezvous;

// Most wait most of the time, for a turn that never comes.
constexpr unsigned kThreads = 100;
constexpr std::size_t kStay = 36;  // connections of a thread that stay open
using Context = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;

std::string plain_join() {
  const auto server = Server::start({.bind_address = "127.0.0.1"});
  if (!server.ok()) return "";
  Relay relay(server.value()->port());
  const auto stub = v1::Rendezvous::NewStub(
      grpc::CreateChannel("127.0.0.1:" + std::to_string(relay.port()), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  const auto stream = stub->Join(&context);
  v1::FromAgent message;
  v1::Join& join = *message.mutable_join();
  join.set_run_id("unauthenticated peer");
  join.set_member_id("unauthenticated peer");
  join.set_host("unauthenticated peer");
  join.set_nproc(1);
  join.set_node_rank(-1);
  join.set_protocol(kRendezvousProtocol);
  join.set_min_nodes(1);
  join.set_max_nodes(1);
  join.set_group_rank(-1);
  v1::FromCoordinator answer;
  const bool answered = stream->Write(message) && stream->Read(&answer);
  context.TryCancel();
  (void)stream->Finish();
  return answered ? relay.sent() : "";
}

std::string locked_call(int port, const JobKey& key) {
  Relay relay(port);
  const auto status = fetch_status("127.0.0.1", relay.port(), "", std::chrono::seconds(10), key);
  return status.ok() ? relay.sent() : "";
}

// From one of many addresses of this host, at times from the members' own; -1 if the kernel has no port left.
int connect_from_somewhere(int port, std::mt19937& random) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  const std::uint32_t host = random() % 64 == 0 ? 0 : random() % 1000;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + (host << 8));
  const int on = 1;
  setsockopt(fd, SOL_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
  const timeval limit{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  (void)bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

void hang_up(int fd) {
  const linger at_once{1, 0};  // no port waits for a minute
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close(fd);
}

// A client that believes every server, and shows the identity's certificate or none.
Context context_of(const std::optional<Identity>& identity) {
  Context context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  static constexpr std::array<unsigned char, 3> kProtocols{2, 'h', '2'};
  SSL_CTX_set_alpn_protos(context.get(), kProtocols.data(), kProtocols.size());
  if (!identity) return context;
  const auto read = [](const std::string& pem, auto* reader) {
    BIO* const memory = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
    auto* const object = reader(memory, nullptr, nullptr, nullptr);
    BIO_free(memory);
    return object;
  };
  X509* const certificate = read(identity->certificate, PEM_read_bio_X509);
  EVP_PKEY* const key = read(identity->private_key, PEM_read_bio_PrivateKey);
  SSL_CTX_use_certificate(context.get(), certificate);
  SSL_CTX_use_PrivateKey(context.get(), key);
  X509_free(certificate);
  EVP_PKEY_free(key);
  return context;
}

}  // namespace

struct Flood::Client {
  Context context;
};

Recordings record(int port, const JobKey& key) {
  return {.plain = plain_join(), .locked = locked_call(port, key)};
}

Flood::Flood(int port, long number, Recordings recordings)
    : port_(port),
      left_(number),
      recordings_(std::move(recordings)),
      other_(new Client{context_of(make_identity(JobKey::random()))}),
      none_(new Client{context_of(std::nullopt)}) {
  for (unsigned i = 0; i < kThreads; ++i) threads_.emplace_back([this, i] { run(i); });
}

Flood::~Flood() {
  stop();
  wait();
}

void Flood::wait() {
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

long Flood::come() const { return std::accumulate(come_.begin(), come_.end(), 0L); }

void Flood::run(unsigned seed) {
  const sched_param idle{};
  sched_setscheduler(0, SCHED_IDLE, &idle);
  std::mt19937 random(seed);
  std::vector<int> open;  // that stay
  const auto say = [](int fd, const std::string& words) {
    (void)send(fd, words.data(), words.size(), MSG_NOSIGNAL);
  };
  while (left_-- > 0) {
    const int kind = static_cast<int>(random() % kKinds);
    const int fd = connect_from_somewhere(port_, random);
    if (fd < 0) continue;
    ++come_[static_cast<std::size_t>(kind)];
    std::string words;
    if (kind == 0)
      for (auto more = 1 + random() % 400; more > 0; --more) words += static_cast<char>(random());
    if (kind == 1) words = recordings_.locked.substr(0, 1 + random() % 300);
    if (kind == 2) words = recordings_.plain;
    if (kind == 3 || kind == 4) speak_tls(fd, kind == 3 ? *other_ : *none_);
    if (kind == 5) words = recordings_.locked;
    if (kind == 7) words = recordings_.locked.substr(0, 1);
    say(fd, words);
    if (kind == 2 || kind == 0) listen(fd);
    if (kind < 6 && random() % 8 != 0) {
      hang_up(fd);
      continue;
    }
    open.push_back(fd);
    if (open.size() < kStay) continue;
    for (const int stays : open) say(stays, recordings_.locked.substr(1, 1));
    for (const int stays : open) hang_up(stays);
    open.clear();
  }
  for (const int stays : open) hang_up(stays);
}

void Flood::speak_tls(int fd, const Client& client) {
  const std::unique_ptr<SSL, decltype(&SSL_free)> session(SSL_new(client.context.get()), SSL_free);
  SSL_set_fd(session.get(), fd);
  char byte = 0;
  if (SSL_connect(session.get()) == 1 && SSL_read(session.get(), &byte, 1) == 1) ++answered_;
}

// A frame of HTTP/2 begins with its length, below 16 MiB; a TLS server says nothing but an alert (21).
void Flood::listen(int fd) {
  pollfd polled{fd, POLLIN, 0};
  unsigned char first = 21;
  if (poll(&polled, 1, 2) == 1 && recv(fd, &first, 1, MSG_DONTWAIT) == 1 && first != 21) ++answered_;
}

}  // namespace dtrun::test
