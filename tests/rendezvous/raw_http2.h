// An HTTP/2 client over TLS that writes whatever frames it likes, also those that no gRPC client would: for
// tests of a server's robustness. Blocking.
#pragma once

#include <openssl/ssl.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/identity/identity.h"

namespace dtrun::test {

class RawHttp2 {
 public:
  // `version`: the only one of TLS that it speaks. The process must ignore SIGPIPE.
  RawHttp2(int port, const rendezvous::Identity& identity, int version = TLS1_3_VERSION);
  ~RawHttp2();
  RawHttp2(const RawHttp2&) = delete;

  bool connected() const { return connected_; }  // the handshake has come to an end, and the preface is sent

  // False once the server has hung up, or does not take more within some seconds.
  bool send(std::string_view bytes);
  // Whether anything that a server says after its settings arrives within the time.
  bool hears_headers(int milliseconds);
  // Until the server hangs up; false if it does not within the time.
  bool ends_within(int milliseconds);
  int session_tickets() const { return tickets_; }

  static std::string frame(unsigned type, unsigned flags, std::uint32_t stream, std::string_view payload);
  static std::string call(std::uint32_t stream, const std::string& path);  // HEADERS, without a message
  static std::string message(std::uint32_t stream, std::string_view protobuf);
  static std::string reset(std::uint32_t stream);
  static std::string ping();

 private:
  using Clock = std::chrono::steady_clock;

  // The next bytes: nothing if none come in time, "" once the server has hung up.
  std::optional<std::string> read(Clock::time_point until);

  int fd_ = -1;
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_;
  std::unique_ptr<SSL, decltype(&SSL_free)> session_;
  bool connected_ = false;
  int tickets_ = 0;
};

}  // namespace dtrun::test
