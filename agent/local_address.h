// Which addresses are this machine's: who hosts the coordinator, and what peers are told.
#pragma once

#include <optional>
#include <string>

namespace dtrun::agent {

struct Home {
  bool known = true;  // false: the name does not resolve (yet)
  // Where a coordinator should listen, a numeric address; nothing if it is another machine's.
  std::optional<std::string> listen_address;
};

// Whether `host` (a name or numeric address) means this machine, which then listens on "0.0.0.0" or "::" for
// a name that other machines know too. May wait for the name service.
Home home_of(const std::string& host);

// Whether home_of(host) answers without the name service.
bool needs_no_lookup(const std::string& host);

// `address`, unless it is loopback although `host` is a name that other machines use (Debian maps a machine's
// own name to 127.0.1.1; a standalone job has no `host`): then the first address of an interface that is up,
// if there is one.
std::string reachable_address(const std::string& address, const std::string& host);

}  // namespace dtrun::agent
