#include "tests/rendezvous/raw_http2.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace dtrun::test {
namespace {

enum Type : unsigned { kData = 0, kHeaders = 1, kResetStream = 3, kSettings = 4, kPing = 6 };
constexpr unsigned kEndStream = 1, kEndHeaders = 4;

std::string bytes_of(std::uint32_t number, int bytes) {
  std::string text;
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) text += static_cast<char>(number >> shift);
  return text;
}

// HPACK, literal without indexing, with a new name (RFC 7541, 6.2.2).
std::string header(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + static_cast<char>(name.size()) + name + static_cast<char>(value.size()) +
         value;
}

int connected_to(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval limit{10, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

int count_ticket(SSL* session, SSL_SESSION*) {
  ++*static_cast<int*>(SSL_get_app_data(session));
  return 0;
}

}  // namespace

RawHttp2::RawHttp2(int port, const rendezvous::Identity& identity, int version)
    : fd_(connected_to(port)),
      context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free),
      session_(nullptr, SSL_free) {
  SSL_CTX_set_min_proto_version(context_.get(), version);
  SSL_CTX_set_max_proto_version(context_.get(), version);
  SSL_CTX_set_session_cache_mode(context_.get(), SSL_SESS_CACHE_CLIENT);
  SSL_CTX_sess_set_new_cb(context_.get(), count_ticket);
  const auto read = [](const std::string& pem, auto* reader, auto use) {
    BIO* const memory = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
    use(reader(memory, nullptr, nullptr, nullptr));
    BIO_free(memory);
  };
  read(identity.certificate, PEM_read_bio_X509, [&](X509* certificate) {
    SSL_CTX_use_certificate(context_.get(), certificate);
    X509_free(certificate);
  });
  read(identity.private_key, PEM_read_bio_PrivateKey, [&](EVP_PKEY* key) {
    SSL_CTX_use_PrivateKey(context_.get(), key);
    EVP_PKEY_free(key);
  });
  session_.reset(SSL_new(context_.get()));
  SSL_set_app_data(session_.get(), &tickets_);
  static constexpr unsigned char kProtocols[] = {2, 'h', '2'};
  SSL_set_alpn_protos(session_.get(), kProtocols, sizeof kProtocols);
  SSL_set_fd(session_.get(), fd_);
  connected_ = fd_ >= 0 && SSL_connect(session_.get()) == 1 &&
               send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(kSettings, 0, 0, ""));
  ERR_clear_error();
}

RawHttp2::~RawHttp2() {
  session_.reset();
  if (fd_ >= 0) close(fd_);
}

bool RawHttp2::send(std::string_view bytes) {
  const bool sent = SSL_write(session_.get(), bytes.data(), static_cast<int>(bytes.size())) ==
                    static_cast<int>(bytes.size());
  ERR_clear_error();
  return sent;
}

std::optional<std::string> RawHttp2::read(Clock::time_point until) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
  pollfd polled{fd_, POLLIN, 0};
  if (SSL_pending(session_.get()) == 0 && poll(&polled, 1, static_cast<int>(std::max<long>(0, left))) <= 0)
    return std::nullopt;
  std::array<char, 16384> bytes{};
  const int got = SSL_read(session_.get(), bytes.data(), bytes.size());
  ERR_clear_error();
  return std::string(bytes.data(), static_cast<std::size_t>(std::max(0, got)));
}

bool RawHttp2::hears_headers(int milliseconds) {
  const auto until = Clock::now() + std::chrono::milliseconds(milliseconds);
  std::string heard;
  for (;;) {
    const auto more = read(until);
    if (!more || more->empty()) return false;
    heard += *more;
    while (heard.size() >= 9) {
      const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(heard[i]); };
      const std::size_t length = static_cast<std::size_t>(byte(0)) << 16 | byte(1) << 8 | byte(2);
      if (byte(3) == kHeaders) return true;
      if (heard.size() < 9 + length) break;
      heard.erase(0, 9 + length);
    }
  }
}

bool RawHttp2::ends_within(int milliseconds) {
  const auto until = Clock::now() + std::chrono::milliseconds(milliseconds);
  std::optional<std::string> heard;
  do heard = read(until);
  while (heard && !heard->empty());
  return heard.has_value();
}

std::string RawHttp2::frame(unsigned type, unsigned flags, std::uint32_t stream, std::string_view payload) {
  return bytes_of(static_cast<std::uint32_t>(payload.size()), 3) + static_cast<char>(type) +
         static_cast<char>(flags) + bytes_of(stream, 4) + std::string(payload);
}

std::string RawHttp2::call(std::uint32_t stream, const std::string& path) {
  return frame(kHeaders, kEndHeaders, stream,
               header(":method", "POST") + header(":scheme", "https") + header(":path", path) +
                   header(":authority", "dtrun") + header("content-type", "application/grpc") +
                   header("te", "trailers"));
}

std::string RawHttp2::message(std::uint32_t stream, std::string_view protobuf) {
  return frame(kData, kEndStream, stream,
               std::string(1, '\0') + bytes_of(static_cast<std::uint32_t>(protobuf.size()), 4) +
                   std::string(protobuf));
}

std::string RawHttp2::reset(std::uint32_t stream) { return frame(kResetStream, 0, stream, bytes_of(8, 4)); }

std::string RawHttp2::ping() { return frame(kPing, 0, 0, "12345678"); }

}  // namespace dtrun::test
