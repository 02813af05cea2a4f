#include "rendezvous/client/tls_probe.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>

#include "rendezvous/identity/identity.h"
#include "rendezvous/wire/grpc_setup.h"

namespace dtrun::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;

// False at the deadline, or when interrupted.
bool wait_for(SSL* session, int fd, Clock::time_point deadline, const Interrupt& interrupt) {
  const short events = SSL_want_write(session) ? POLLOUT : POLLIN;
  std::array<pollfd, 2> polled{{{fd, events, 0}, {interrupt.fd(), POLLIN, 0}}};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  const int ready = poll(polled.data(), polled.size(), static_cast<int>(std::max<long>(0, left)));
  return ready > 0 && polled[1].revents == 0;
}

// OpenSSL writes to a connection that may be closed by then; this thread shall not get SIGPIPE for it.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoPipeSignal() {
    const timespec now{};
    if (sigismember(&before_, SIGPIPE) == 0) {
      while (sigtimedwait(&pipe_, nullptr, &now) == SIGPIPE) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoPipeSignal(const NoPipeSignal&) = delete;

 private:
  sigset_t pipe_{}, before_{};
};

// The issuer of the certificate that the server shows; nothing if it shows none.
std::optional<std::string> issuer_at(const std::string& host, int port, std::chrono::milliseconds timeout,
                                     const Interrupt& interrupt) {
  const Dialled dialled = dial(host, port, timeout, interrupt);
  if (dialled.fd < 0) return std::nullopt;
  const NoPipeSignal quiet;
  const auto deadline = Clock::now() + timeout;
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  SSL_CTX_free);
  const std::unique_ptr<SSL, decltype(&SSL_free)> session(SSL_new(context.get()), SSL_free);
  std::optional<std::string> issuer;
  if (session) {
    // gRPC hangs up on a client that does not name the protocol.
    static constexpr unsigned char kProtocols[] = {2, 'h', '2'};
    SSL_set_alpn_protos(session.get(), kProtocols, sizeof kProtocols);
    SSL_set_fd(session.get(), dialled.fd);
    for (int result = SSL_connect(session.get()); result != 1; result = SSL_connect(session.get())) {
      const int error = SSL_get_error(session.get(), result);
      const bool waits = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
      if (!waits || !wait_for(session.get(), dialled.fd, deadline, interrupt)) break;
    }
    if (X509* const certificate = SSL_get0_peer_certificate(session.get())) {
      char name[128] = "";
      X509_NAME_get_text_by_NID(X509_get_issuer_name(certificate), NID_commonName, name, sizeof name);
      issuer = name;
    }
    ERR_clear_error();
  }
  close(dialled.fd);
  return issuer;
}

// `source`: where this node's key was found.
std::string remedy_for(const std::string& source) {
  const std::string all = ", or give all nodes the same --key_file FILE, or --insecure";
  if (source.empty() || source.starts_with("/"))
    return " (" + source + "): copy its ~/.config/dtrun/key to this node" + all;
  return " (" + source + "): give it the key file of the coordinator's node" + all;
}

}  // namespace

Status compare_keys(const std::string& host, int port, const std::optional<JobKey>& key,
                    std::chrono::milliseconds timeout, const Interrupt& interrupt) {
  const auto refused = [&](const std::string& what) {
    return Status(kExitNoPermission, "the coordinator at " + endpoint_text(host, port) + " " + what);
  };
  if (unix_path(host)) return {};  // no key is asked for there
  const std::optional<std::string> issuer = issuer_at(host, port, timeout, interrupt);
  if (!issuer) {
    if (!key || probe(host, port, timeout, interrupt) != ProbeAnswer::kHttp2) return {};
    return refused("takes anybody (--insecure), and this node has the job key " + key->fingerprint() +
                   ": start all nodes with --insecure, or none");
  }
  const std::string there = fingerprint_in(*issuer);
  if (there.empty()) return {};
  if (!key)
    return refused(
        "wants the job key " + there +
        ", and this node has none (--insecure, DTRUN_INSECURE, or no home): give it the coordinator's "
        "with --key_file FILE, or start all nodes with --insecure");
  if (there == key->fingerprint()) return {};
  return refused("has the job key " + there + ", and this node has " + key->fingerprint() +
                 remedy_for(key->source()));
}

}  // namespace dtrun::rendezvous
