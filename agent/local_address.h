// Tells which addresses belong to this machine: whether it hosts the coordinator, and which address peers
// get.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/hosting.h"

namespace dtrun::agent {

struct Home {
  bool known = true;  // false: the name does not resolve (yet)
  // The numeric address for a coordinator to listen on; nothing if the name is another machine's.
  std::optional<std::string> listen_address;
};

// Tells whether `host` (a name or numeric address) means this machine. If other machines know the name too,
// the coordinator listens on "0.0.0.0" or "::". May wait for the name service.
Home home_of(const std::string& host);

// The address to give to peers: `address`; or, if that is loopback although other machines use the name
// `host`, the first address of an interface that is up, if there is one. (Debian maps a machine's own name to
// 127.0.1.1; a standalone job has no `host`.)
std::string reachable_address(const std::string& address, const std::string& host);

// All addresses under which another host may reach this one, the likeliest first: `proven`, through which
// another host already has (empty: not known), those of ordinary interfaces, those of bridges for containers,
// which many hosts have alike, and loopback. Link-local ones are left out: they mean nothing without an
// interface.
std::vector<std::string> own_addresses(const std::string& proven);

// False in a sandbox without a network (unshare -n) whose loopback nobody has set up.
bool loopback_is_up();

// Name and address of each interface that is up.
std::vector<std::pair<std::string, std::string>> own_interfaces();

// The facts that decide_hosting() has to know of this machine if a job names these hosts. Asks for no other
// name than localhost, and for that only if it is among them.
OwnAddresses addresses_for(const std::vector<std::string>& hosts);

}  // namespace dtrun::agent
