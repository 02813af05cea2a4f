// The page of the coordinator's runs on a port of its own. Until the first connection it is a socket that
// listens and nothing else; then a thread of its own answers all. What is answered is decided by routes.h,
// and who may look by access.h.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "proto/core/status.h"
#include "rendezvous/http/routes.h"
#include "rendezvous/identity/identity.h"

namespace dtrun::rendezvous {

struct HttpOptions {
  std::string address = "127.0.0.1";  // numeric
  int port = 0;                       // 0: any free one
  // For HTTPS. REQUIRES: set unless the address is one of loopback.
  std::optional<Identity> identity = {};
  Site site = {};
};

class HttpServer {
 public:
  // Fails with EX_UNAVAILABLE if the port cannot be bound.
  static Result<std::unique_ptr<HttpServer>> listen(HttpOptions options);
  // Breaks all connections. The site's functions are not called afterwards.
  virtual ~HttpServer() = default;

  virtual int port() const = 0;
  virtual std::string url() const = 0;  // "http://127.0.0.1:40123"
  // A descriptor that can be read from once somebody connects: then serve() is to be called, and not before,
  // so that a page that nobody looks at costs no thread. Its owner forgets the descriptor first.
  virtual int listener() const = 0;
  virtual void serve() = 0;
};

}  // namespace dtrun::rendezvous
