#include "rendezvous/grpc_setup.h"

#include <grpc/support/log.h>

#include <cstdlib>
#include <string_view>

namespace dtrun::rendezvous {

void set_up_grpc() {
  static const bool done = [] {
    const char* level = std::getenv("DTRUN_LOG_LEVEL");
    const std::string_view chosen = level != nullptr ? level : "";
    if (chosen != "debug" && chosen != "trace") gpr_set_log_function([](gpr_log_func_args*) {});
    return true;
  }();
  (void)done;
}

std::string endpoint_text(const std::string& host, int port) {
  const bool ipv6 = host.find(':') != std::string::npos;
  return (ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

}  // namespace dtrun::rendezvous
