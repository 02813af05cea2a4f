// The order of things: the strand starts before the port is open, since the first message may come at once.
// At the end the gRPC server goes first, which cancels all streams and waits for them; then the strand stops,
// since those streams still post to it. A host that may lead tells the others before all this.
#include "rendezvous/server/server.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/server_interceptor.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <vector>

#include "rendezvous/identity/identity.h"
#include "rendezvous/server/candidate.h"
#include "rendezvous/server/coordinator.h"
#include "rendezvous/server/gate.h"
#include "rendezvous/server/rendezvous_service.h"
#include "rendezvous/server/store_service.h"
#include "rendezvous/server/strand.h"
#include "rendezvous/wire/grpc_setup.h"

namespace dtrun::rendezvous {
namespace {

// The longest word is a node's outcomes, which are made to fit (wire/convert.h).
constexpr int kMaxMessageBytes = 4 << 20;
// Limit of one connection: each worker of a node may wait for a key, and the call that sets it comes on the
// same connection.
constexpr int kMaxStreams = 1024;
// Milliseconds between pings, and how many faster ones end a connection. Agents send few pings, and gRPC some
// more that measure the network after each answer.
constexpr int kPingInterval = 1000, kPingStrikes = 100;

// A store of its own has room for many runs; one in an agent shares the node with its workers.
KeyValueStore::Limits limits_of(const ServerOptions& options) {
  KeyValueStore::Limits limits;
  if (options.separate) limits.total = std::size_t{1} << 30;
  return limits;
}

// The gate then closes those that have ended their handshake and make no call.
constexpr int kHandshakeMs = 5000;
static_assert(kHandshakeMs < Times().first_call.count());

std::shared_ptr<grpc::ServerCredentials> credentials_of(const JobKey& key) {
  set_up_tls();
  const Identity identity = make_identity(key);
  grpc::SslServerCredentialsOptions ssl(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  ssl.pem_root_certs = identity.root;
  ssl.pem_key_cert_pairs = {{identity.private_key, identity.certificate}};
  return grpc::SslServerCredentials(ssl);
}

// Tells the gate of every call: its caller has shown a certificate of the key.
class CallWatch final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CallWatch(Gate& gate) : gate_(gate) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* call) override {
    gate_.came_in(call->server_context()->peer());
    return nullptr;
  }

 private:
  Gate& gate_;
};

class GrpcServer final : public Server {
 public:
  explicit GrpcServer(const ServerOptions& options)
      : candidate_(options.candidate ? std::make_unique<Candidate>(*options.candidate, calls()) : nullptr),
        coordinator_({.separate = options.separate,
                      .fence = candidate_.get(),
                      .host = options.host,
                      .ended = [this](const std::string& run_id) { store_.forget(run_id + "/"); },
                      .notice = options.notice,
                      .leads = options.leads}),
        rendezvous_(coordinator_, strand_),
        store_(strand_, limits_of(options), [this] { return coordinator_.leads(); }) {
    if (candidate_) election_.emplace(*candidate_);
    strand_.start([this] { return std::min(coordinator_.tend(), store_.tend()); });
  }

  ~GrpcServer() override {
    if (candidate_) candidate_->retire();
    if (gate_) gate_->close();
    if (server_) server_->Shutdown(std::chrono::system_clock::now());  // cancels open calls, waits for them
    candidate_.reset();
    strand_.stop();
  }

  bool listen(const ServerOptions& options) {
    grpc::ServerBuilder builder;
    // Another process must never share the port: half of the agents would reach the wrong coordinator.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kPingInterval);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, kPingStrikes);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreams);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
    if (options.key && !unix_path(options.bind_address)) {
      gate_ = Gate::open(options.bind_address, options.port, options.unauthenticated_files, options.times,
                         options.turned_away);
      if (!gate_) return false;
      std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> watches;
      watches.push_back(std::make_unique<CallWatch>(*gate_));
      builder.experimental().SetInterceptorCreators(std::move(watches));
      using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
      acceptor =
          builder.experimental().AddExternalConnectionAcceptor(Type::FROM_FD, credentials_of(*options.key));
    } else {
      builder.AddListeningPort(endpoint_text(options.bind_address, options.port),
                               grpc::InsecureServerCredentials(), &port_);
    }
    builder.RegisterService(&rendezvous_);
    builder.RegisterService(&store_);
    if (election_) builder.RegisterService(&*election_);
    server_ = builder.BuildAndStart();
    if (server_ && gate_) {
      port_ = gate_->port();
      gate_->start([acceptor = std::shared_ptr(std::move(acceptor))](int fd) {
        grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
        connection.fd = fd;
        acceptor->HandleNewConnection(&connection);
      });
    }
    return server_ != nullptr && port_ != 0;
  }

  int port() const override { return port_; }
  int members() const override { return coordinator_.members(); }
  int waiters() const override { return rendezvous_.waiters(); }
  bool leads() const override { return !candidate_ || candidate_->leads(); }

  std::vector<RunView> look(const std::string& run_id, const HistoryMark& mark) override {
    std::promise<std::vector<RunView>> told;
    strand_.post([&] { told.set_value(coordinator_.look(run_id, mark)); });
    return told.get_future().get();
  }

  void set_page(PageAddress page) override {
    strand_.post([this, page = std::move(page)] { coordinator_.set_page(page); });
  }

 private:
  // The candidate's own strand does not wait for the coordinator's work.
  Candidate::Calls calls() {
    return {.lead =
                [this](const election::BecomeLeader& lead) {
                  strand_.hand_over([this, lead] {
                    if (!lead.again) store_.clear();
                    coordinator_.lead(lead);
                  });
                },
            .step_down =
                [this] {
                  strand_.hand_over([this] {
                    coordinator_.step_down();
                    if (!coordinator_.leads()) store_.send_away();
                  });
                },
            .forget =
                [this] {
                  strand_.hand_over([this] {
                    if (!coordinator_.leads()) store_.clear();
                  });
                },
            .written =
                [this](std::int64_t version) {
                  strand_.hand_over([this, version] { coordinator_.written(version); });
                }};
  }

  std::unique_ptr<Gate> gate_;  // with a key; closed before the server is shut down
  Strand strand_;
  std::unique_ptr<Candidate> candidate_;  // null: no other host may lead
  Coordinator coordinator_;
  RendezvousService rendezvous_;
  StoreService store_;
  std::optional<ElectionService> election_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

// Tries to bind a Unix socket to the path; returns errno, which tells what is wrong with the path.
int bind_unix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return ENAMETOOLONG;
  path.copy(address.sun_path, path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int error = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
  close(fd);
  return error;
}

int bind_port(const addrinfo& address) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool bound = bind(fd, address.ai_addr, address.ai_addrlen) == 0 && ::listen(fd, 1) == 0;
  const int error = bound ? 0 : errno;
  close(fd);
  return error;
}

// Why the address cannot be bound: gRPC keeps that to itself.
std::string bind_error(const ServerOptions& options) {
  int error = 0;
  if (const auto path = unix_path(options.bind_address)) {
    error = bind_unix(*path);
  } else {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    addrinfo* found = nullptr;
    const int unknown =
        getaddrinfo(options.bind_address.c_str(), std::to_string(options.port).c_str(), &hints, &found);
    if (unknown != 0) return gai_strerror(unknown);
    error = bind_port(*found);
    freeaddrinfo(found);
    if (error == EADDRINUSE)
      return std::strerror(error) +
             std::string("; another process listens on that port, choose another port or end it");
  }
  return error == 0 ? "gRPC could not listen there" : std::strerror(error);
}

}  // namespace

Result<std::unique_ptr<Server>> Server::start(const ServerOptions& options) {
  set_up_grpc();
  auto server = std::make_unique<GrpcServer>(options);
  if (server->listen(options)) return std::unique_ptr<Server>(std::move(server));
  return Status(kExitUnavailable, "the coordinator cannot listen on " +
                                      endpoint_text(options.bind_address, options.port) + ": " +
                                      bind_error(options));
}

}  // namespace dtrun::rendezvous
