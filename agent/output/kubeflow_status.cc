#include "agent/output/kubeflow_status.h"

#include <openssl/err.h>
#include <openssl/http.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <fstream>

#include "proto/core/text.h"
#include "proto/json/json.h"

namespace dtrun::agent {
namespace {

constexpr auto kBetweenPosts = std::chrono::seconds(5);
constexpr int kTimeoutSeconds = 5;
constexpr std::size_t kLongestAnswer = 64u << 10;

template <class T>
using Owned = std::unique_ptr<T, void (*)(T*)>;

struct Url {
  std::string host, port, path;
  bool tls = false;
};
std::optional<Url> parse(const std::string& url) {
  int tls = 0;
  char *host = nullptr, *port = nullptr, *path = nullptr;
  if (OSSL_HTTP_parse_url(url.c_str(), &tls, nullptr, &host, &port, nullptr, &path, nullptr, nullptr) != 1)
    return {};
  Url parts{.host = host, .port = port, .path = path, .tls = tls != 0};
  for (char* text : {host, port, path}) OPENSSL_free(text);
  return parts;
}

// OpenSSL's reasons, the first cause first.
std::string why() {
  std::string text;
  const char* data = nullptr;
  int flags = 0;
  while (const unsigned long error = ERR_get_error_all(nullptr, nullptr, nullptr, &data, &flags)) {
    const char* const known = ERR_reason_error_string(error);
    std::string reason = known != nullptr ? known : "error " + std::to_string(error);
    if ((flags & ERR_TXT_STRING) != 0 && *data != 0) reason += std::string(" (") + data + ")";
    if (text.find(reason) == std::string::npos) text += (text.empty() ? "" : ", ") + reason;
  }
  return text.empty() ? "no answer" : text;
}

struct TlsPeer {
  SSL_CTX* context;
  const Url& url;
};

// OSSL_HTTP_bio_cb_t: puts TLS around a connection that has been made.
BIO* wrap(BIO* bio, void* argument, int connect, int detail) {
  const auto& peer = *static_cast<const TlsPeer*>(argument);
  if (connect == 0 || detail == 0) return bio;
  SSL* const ssl = SSL_new(peer.context);
  BIO* const around = BIO_new(BIO_f_ssl());
  if (ssl == nullptr || around == nullptr) return SSL_free(ssl), BIO_free(around), nullptr;
  const char* const host = peer.url.host.c_str();
  X509_VERIFY_PARAM* const verify = SSL_get0_param(ssl);
  if (X509_VERIFY_PARAM_set1_ip_asc(verify, host) != 1) {
    SSL_set_tlsext_host_name(ssl, host);
    SSL_set1_host(ssl, host);
  }
  ERR_clear_error();
  SSL_set_connect_state(ssl);
  BIO_set_ssl(around, ssl, BIO_CLOSE);
  return BIO_push(around, bio);
}

void free_headers(STACK_OF(CONF_VALUE) * headers) { sk_CONF_VALUE_pop_free(headers, X509V3_conf_free); }

}  // namespace

std::string kubeflow_status_json(const Progress& progress, std::optional<double> seconds_left,
                                 const std::string& updated_at) {
  Json metrics = Json::array();
  const auto add = [&](const char* name, double value) {
    if (std::isfinite(value)) metrics.push_back({{"name", name}, {"value", json_text(value)}});
  };
  metrics.push_back({{"name", "step"}, {"value", std::to_string(progress.step)}});
  add("epoch", progress.epoch);
  if (progress.loss) add("loss", *progress.loss);
  if (progress.accuracy) add("accuracy", *progress.accuracy);
  add("learning_rate", progress.learning_rate);
  add("samples_per_second", progress.samples_per_second);
  const std::int64_t percent = progress.total_steps > 0 ? 100 * progress.step / progress.total_steps : 0;
  Json status{{"progressPercentage", std::clamp<std::int64_t>(percent, 0, 100)}};
  if (seconds_left) status["estimatedRemainingSeconds"] = std::llround(std::max(0.0, *seconds_left));
  status["metrics"] = metrics;
  status["lastUpdatedTime"] = updated_at;
  return json_text({{"trainerStatus", status}});
}

// The variables were called …_STATUS_… before Kubeflow Trainer 2.2.
std::optional<KubeflowServer> KubeflowServer::of(const std::function<const char*(const char*)>& environment) {
  for (const std::string prefix : {"KUBEFLOW_TRAINER_SERVER_", "KUBEFLOW_TRAINER_STATUS_"}) {
    const auto value = [&](const char* name) {
      const char* const text = environment((prefix + name).c_str());
      return std::string(text != nullptr ? text : "");
    };
    KubeflowServer server{.url = value("URL"), .ca_file = value("CA_CERT"), .token_file = value("TOKEN")};
    if (!server.url.empty()) return server;
  }
  return std::nullopt;
}

std::string KubeflowServer::post(const std::string& body) const {
  ERR_clear_error();
  const std::optional<Url> parts = parse(url);
  if (!parts || !parts->tls) return url + " is no https address";
  std::string token;  // it is renewed from time to time
  if (!(std::ifstream(token_file) >> token)) return token_file + " has no token";
  const Owned<SSL_CTX> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  if (SSL_CTX_load_verify_file(context.get(), ca_file.c_str()) != 1) return ca_file + " has no certificate";
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  STACK_OF(CONF_VALUE)* list = nullptr;
  X509V3_add_value("Authorization", ("Bearer " + token).c_str(), &list);
  const std::unique_ptr<STACK_OF(CONF_VALUE), decltype(&free_headers)> headers(list, free_headers);
  const Owned<BIO> request(BIO_new_mem_buf(body.data(), static_cast<int>(body.size())), BIO_free_all);
  TlsPeer peer{.context = context.get(), .url = *parts};
  const Owned<BIO> answer(
      OSSL_HTTP_transfer(nullptr, parts->host.c_str(), parts->port.c_str(), parts->path.c_str(), 1, nullptr,
                         nullptr, nullptr, nullptr, wrap, &peer, 0, headers.get(), "application/json",
                         request.get(), nullptr, 0, kLongestAnswer, kTimeoutSeconds, 0),
      BIO_free_all);
  return answer ? "" : why();
}

KubeflowStatus::KubeflowStatus(KubeflowServer server)
    : server_(std::move(server)), thread_([this] { run(); }) {}

void KubeflowStatus::finish() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void KubeflowStatus::update(const Progress& progress, std::optional<double> seconds_left) {
  {
    const std::lock_guard lock(mutex_);
    waiting_ = {progress, seconds_left};
  }
  changed_.notify_one();
}

std::string KubeflowStatus::take_fault() {
  const std::lock_guard lock(mutex_);
  return std::exchange(fault_, "");
}

void KubeflowStatus::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return waiting_ || ending_; });
    if (!waiting_) return;
    const std::string body = kubeflow_status_json(waiting_->first, waiting_->second,
                                                  utc_text(std::time(nullptr), "%Y-%m-%dT%H:%M:%SZ"));
    waiting_.reset();
    lock.unlock();
    std::string fault = server_.post(body);
    lock.lock();
    if (!fault.empty() && !std::exchange(failed_, true)) fault_ = std::move(fault);
    changed_.wait_for(lock, kBetweenPosts, [this] { return ending_; });
  }
}

}  // namespace dtrun::agent
