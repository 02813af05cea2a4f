#include "agent/local_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "proto/base/ids.h"
#include "rendezvous/client/endpoint.h"

namespace dtrun::agent {
namespace {

std::string numeric(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  } else if (address->sa_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text);
  }
  return text;
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

bool is_numeric(const std::string& host) {
  in6_addr scratch;
  return inet_pton(AF_INET, host.c_str(), &scratch) == 1 || inet_pton(AF_INET6, host.c_str(), &scratch) == 1;
}

struct Interface {
  std::string name;
  std::string address;
  bool loopback;
  bool ipv4;
};

std::vector<Interface> interfaces() {
  std::vector<Interface> found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || !(entry->ifa_flags & IFF_UP)) continue;
    const std::string address = numeric(entry->ifa_addr);
    if (!address.empty()) {
      found.push_back({entry->ifa_name, address, (entry->ifa_flags & IFF_LOOPBACK) != 0,
                       entry->ifa_addr->sa_family == AF_INET});
    }
  }
  freeifaddrs(list);
  return found;
}

// How likely it is that another host reaches it: less is likelier.
int distance(const Interface& interface, const std::string& proven) {
  if (interface.address == proven) return 0;
  if (interface.loopback) return 4;
  for (const char* bridge :
       {"docker", "br-", "virbr", "veth", "cni", "flannel", "lxc", "podman", "tailscale"})
    if (interface.name.starts_with(bridge)) return 3;
  return interface.ipv4 ? 1 : 2;
}

bool is_ours(const std::string& address) {
  if (is_loopback(address)) return true;
  for (const Interface& interface : interfaces()) {
    if (interface.address == address) return true;
  }
  return false;
}

std::vector<std::string> resolve(const std::string& host) {
  const rendezvous::Addresses found = rendezvous::look_up(host, 0);
  std::vector<std::string> addresses;
  for (const addrinfo* entry = found.list.get(); entry != nullptr; entry = entry->ai_next)
    addresses.push_back(numeric(entry->ai_addr));
  return addresses;
}

}  // namespace

Home home_of(const std::string& host) {
  if (is_numeric(host)) return {true, is_ours(host) ? std::optional(host) : std::nullopt};
  const std::vector<std::string> addresses = resolve(host);
  for (const std::string& address : addresses) {
    if (!is_ours(address)) continue;
    if (host == "localhost") return {true, address};
    return {true, address.find(':') == std::string::npos ? "0.0.0.0" : "::"};
  }
  // A cluster's name for this host may be in no name server.
  if (addresses.empty() && host == host_name()) return {true, "0.0.0.0"};
  return {!addresses.empty(), std::nullopt};
}

std::vector<std::string> own_addresses(const std::string& proven) {
  std::vector<Interface> found = interfaces();
  std::erase_if(found, [](const Interface& one) { return one.address.starts_with("fe80"); });
  std::ranges::stable_sort(found, {}, [&](const Interface& one) { return distance(one, proven); });
  std::vector<std::string> addresses;
  for (const Interface& one : found) addresses.push_back(one.address);
  return addresses;
}

// A sandbox may hide its interfaces.
bool loopback_is_up() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return true;
  const bool hidden = list == nullptr;
  freeifaddrs(list);
  return hidden || std::ranges::any_of(interfaces(), &Interface::loopback);
}

std::vector<std::pair<std::string, std::string>> own_interfaces() {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const Interface& one : interfaces()) pairs.emplace_back(one.name, one.address);
  return pairs;
}

OwnAddresses addresses_for(const std::vector<std::string>& hosts) {
  OwnAddresses own{.numeric = own_addresses("")};
  if (std::ranges::count(hosts, "localhost") == 0) return own;
  const std::vector<std::string> found = resolve("localhost");
  const auto ours = std::ranges::find_if(found, is_ours);
  if (ours != found.end()) own.localhost = *ours;
  return own;
}

std::string reachable_address(const std::string& address, const std::string& host) {
  const bool this_host_alone = host.empty() || host == "localhost" || is_numeric(host);
  if (!is_loopback(address) || this_host_alone) return address;
  std::string any;
  for (const Interface& interface : interfaces()) {
    if (interface.loopback || interface.address.starts_with("fe80")) continue;
    if (interface.ipv4) return interface.address;
    if (any.empty()) any = interface.address;
  }
  return any.empty() ? address : any;
}

}  // namespace dtrun::agent
