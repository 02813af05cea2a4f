// Decides who may look at the page of a job. A connection from the same machine is known by the user who
// opened it, whom the kernel names; others need a token. A browser may be led here by any web site under a
// name of that site's (DNS rebinding), so the name that it asks for must be that of loopback. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::rendezvous {

// A socket's address in the form of the kernel's tables: the bytes of an IPv4 or IPv6 address, and a port.
struct SocketAddress {
  std::vector<unsigned char> bytes;  // 4 or 16
  std::uint16_t port = 0;

  bool operator==(const SocketAddress&) const = default;
};

bool is_loopback(const SocketAddress& address);

// The user who owns the connection's other end, `peer`, by the text of /proc/net/tcp or tcp6; nothing if it
// is not there.
std::optional<std::uint32_t> owner_of(std::string_view table, const SocketAddress& peer,
                                      const SocketAddress& own);

// True if the Host of a request names loopback, with any port.
bool is_own_name(std::string_view host);

// In a time that does not depend on where they differ.
bool same_secret(std::string_view one, std::string_view other);

}  // namespace dtrun::rendezvous
