#include "rendezvous/server/peer_name.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>

namespace dtrun::rendezvous {

std::string peer_name(const sockaddr_storage& from) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const auto name = [&](const char* before, const char* after, in_port_t port) {
    return before + std::string(text.data()) + after + std::to_string(ntohs(port));
  };
  if (from.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(from);
    inet_ntop(AF_INET, &four.sin_addr, text.data(), text.size());
    return name("ipv4:", ":", four.sin_port);
  }
  const auto& six = reinterpret_cast<const sockaddr_in6&>(from);
  if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) {
    inet_ntop(AF_INET, six.sin6_addr.s6_addr + 12, text.data(), text.size());
    return name("ipv4:", ":", six.sin6_port);
  }
  inet_ntop(AF_INET6, &six.sin6_addr, text.data(), text.size());
  return name("ipv6:%5B", "%5D:", six.sin6_port);
}

}  // namespace dtrun::rendezvous
