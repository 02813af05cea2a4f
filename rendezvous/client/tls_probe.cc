#include "rendezvous/client/tls_probe.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <ctime>
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

// How a TLS server took a client.
struct Reception {
  std::optional<std::string> issuer;  // of its certificate; nothing if it shows none
  bool refused = false;               // it closed the connection on a scoped token, without a message
};

void show(SSL* session, const Identity& identity) {
  const auto read = [](const std::string& pem, auto* reader) {
    const std::unique_ptr<BIO, decltype(&BIO_free_all)> memory(
        BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free_all);
    return reader(memory.get(), nullptr, nullptr, nullptr);
  };
  X509* const certificate = read(identity.certificate, PEM_read_bio_X509);
  EVP_PKEY* const key = read(identity.private_key, PEM_read_bio_PrivateKey);
  SSL_use_certificate(session, certificate);
  SSL_use_PrivateKey(session, key);
  X509_free(certificate);
  EVP_PKEY_free(key);
}

// Connects, and reads until the server says something: in TLS 1.3 it looks at the client's certificate last.
Reception reception_at(const std::string& host, int port, const std::optional<Credential>& key,
                       std::chrono::milliseconds timeout, const Interrupt& interrupt) {
  const Dialled dialled = dial(host, port, timeout, interrupt);
  if (dialled.fd < 0) return {};
  const NoPipeSignal quiet;
  const auto deadline = Clock::now() + timeout;
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  SSL_CTX_free);
  const std::unique_ptr<SSL, decltype(&SSL_free)> session(SSL_new(context.get()), SSL_free);
  Reception found;
  if (session) {
    // gRPC hangs up on a client that does not name the protocol.
    static constexpr unsigned char kProtocols[] = {2, 'h', '2'};
    SSL_set_alpn_protos(session.get(), kProtocols, sizeof kProtocols);
    SSL_set_fd(session.get(), dialled.fd);
    if (key) SSL_set_tlsext_host_name(session.get(), key->name_to_ask_for().c_str());
    SSL_set_connect_state(session.get());
    const bool token = key && key->token() != nullptr;
    if (token) show(session.get(), key->identity());
    found.refused = token;
    char byte = 0;
    for (;;) {
      const int result = token ? SSL_read(session.get(), &byte, 1) : SSL_do_handshake(session.get());
      const int error = SSL_get_error(session.get(), result);
      const bool waits = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
      if (result == 1) found.refused = false;
      if (!waits) break;
      if (wait_for(session.get(), dialled.fd, deadline, interrupt)) continue;
      found.refused = false;
      break;
    }
    if (X509* const certificate = SSL_get0_peer_certificate(session.get())) {
      char name[128] = "";
      X509_NAME_get_text_by_NID(X509_get_issuer_name(certificate), NID_commonName, name, sizeof name);
      found.issuer = name;
    }
    ERR_clear_error();
  }
  close(dialled.fd);
  return found;
}

// A store's clock may be ahead, but not by much: an agent's coordinator takes no scoped tokens.
Status token_refused(const ScopedToken& token, const std::string& endpoint) {
  constexpr std::int64_t kClocksApart = 300;  // seconds
  if (token.until() > std::time(nullptr) + kClocksApart)
    return Status(kExitNoPermission, "the coordinator at " + endpoint +
                                         " takes no scoped tokens, as a `dtrun store` does, "
                                         "and this node has one for run " +
                                         token.run_id());
  return Status(kExitNoPermission,
                token.ending() + ", by the clock of the store at " + endpoint + "; ask for a new one there");
}

// `source`: where this node's key was found.
std::string remedy_for(const std::string& source) {
  const std::string all = ", or give all nodes the same --key_file FILE, or --insecure";
  if (source.empty() || source.starts_with("/"))
    return " (" + source + "): copy its ~/.config/dtrun/key to this node" + all;
  return " (" + source + "): give it the key file of the coordinator's node" + all;
}

}  // namespace

Status compare_keys(const std::string& host, int port, const std::optional<Credential>& key,
                    std::chrono::milliseconds timeout, const Interrupt& interrupt) {
  const auto refused = [&](const std::string& what) {
    return Status(kExitNoPermission, "the coordinator at " + endpoint_text(host, port) + " " + what);
  };
  if (unix_path(host)) return {};  // no key is asked for there
  const Reception found = reception_at(host, port, key, timeout, interrupt);
  if (!found.issuer) {
    if (!key || probe(host, port, timeout, interrupt) != ProbeAnswer::kHttp2) return {};
    return refused("takes anybody (--insecure), and this node has the job key " + key->fingerprint() +
                   ": start all nodes with --insecure, or none");
  }
  const std::string there = fingerprint_in(*found.issuer);
  if (there.empty()) return {};
  if (!key)
    return refused(
        "wants the job key " + there +
        ", and this node has none (--insecure, DTRUN_INSECURE, or no home): give it the coordinator's "
        "with --key_file FILE, or start all nodes with --insecure");
  // gRPC's server does not say why it hangs up. With a scoped token from its own authority there is only one
  // reason, unless the server is just ending: then it does not answer a second time.
  const bool token = found.refused && there == key->fingerprint();
  if (token && reception_at(host, port, key, timeout, interrupt).refused)
    return token_refused(*key->token(), endpoint_text(host, port));
  if (there == key->fingerprint()) return {};
  return refused("has the job key " + there + ", and this node has " + key->fingerprint() +
                 remedy_for(key->source()));
}

}  // namespace dtrun::rendezvous
