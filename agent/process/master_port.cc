#include "agent/process/master_port.h"

#include <cerrno>
#include <cstring>
#include <string>

#include "proto/base/any_address.h"

namespace dtrun::agent {

Result<HeldPort> hold_port(int port) {
  HeldPort held;
  held.socket = bound_to_all(port);
  if (!held.socket.open()) {
    const std::string text = port == 0 ? "cannot hold a port for MASTER_PORT: "
                                       : "cannot hold MASTER_PORT " + std::to_string(port) + ": ";
    return Status(kExitUnavailable, text + std::strerror(errno) +
                                        (port == 0 ? "" : " (without --master_port a free one is taken)"));
  }
  held.port = port_of(held.socket.get());
  return held;
}

}  // namespace dtrun::agent
