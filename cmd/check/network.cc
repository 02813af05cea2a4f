#include "cmd/check/network.h"

#include <net/if.h>
#include <netdb.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "agent/local_address.h"
#include "cmd/options/values.h"
#include "proto/base/descriptor.h"
#include "proto/base/ids.h"
#include "rendezvous/client/endpoint.h"
#include "rendezvous/client/status_client.h"

namespace dtrun::cmd {
namespace {

using namespace std::chrono_literals;

std::string numeric(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST] = {};
  return getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

struct Meaning {
  std::vector<std::string> addresses;
  std::string error;
};

Meaning meaning_of(const std::string& host) {
  const rendezvous::Addresses found = rendezvous::look_up(host, 0);
  Meaning meaning{.addresses = {}, .error = found.error};
  for (const addrinfo* one = found.list.get(); one != nullptr; one = one->ai_next)
    meaning.addresses.push_back(numeric(one->ai_addr, one->ai_addrlen));
  return meaning;
}

void read_interface(NodeFacts* facts) {
  for (const auto& [name, own] : agent::own_interfaces())
    if (own == facts->address) facts->interface = name;
  if (facts->interface.empty()) return;
  const Descriptor socket_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  facts->interface.copy(request.ifr_name, sizeof request.ifr_name - 1);
  if (ioctl(socket_.get(), SIOCGIFMTU, &request) == 0) facts->mtu = request.ifr_mtu;
}

}  // namespace

void read_names(NodeFacts* facts) {
  facts->host = host_name();
  Meaning meaning = meaning_of(facts->host);
  facts->means = std::move(meaning.addresses);
  facts->name_problem = std::move(meaning.error);
  facts->own = agent::own_addresses("");
}

// A UDP socket that is connected sends nothing, and knows its way.
void read_route(const std::string& host, int port, NodeFacts* facts) {
  const Meaning meaning = meaning_of(host);
  if (meaning.addresses.empty()) {
    facts->route_problem = host + ": " + meaning.error;
    return;
  }
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* target = nullptr;
  if (getaddrinfo(meaning.addresses.front().c_str(), std::to_string(port).c_str(), &hints, &target) != 0)
    return;
  const Descriptor socket_(socket(target->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  auto* const generic = reinterpret_cast<sockaddr*>(&own);
  if (connect(socket_.get(), target->ai_addr, target->ai_addrlen) != 0)
    facts->route_problem = host + ": " + std::strerror(errno);
  else if (getsockname(socket_.get(), generic, &size) == 0)
    facts->address = agent::reachable_address(numeric(generic, size), host);
  freeaddrinfo(target);
  read_interface(facts);
}

void read_listener(const std::string& host, int port, const JobSpec& spec, NodeFacts* facts) {
  facts->endpoint = endpoint_text({.host = host, .port = port});
  const rendezvous::Interrupt interrupt;
  const Descriptor dialled(rendezvous::dial(host, port, 700ms, interrupt).fd);
  if (!dialled.open()) {
    facts->listener = "nobody";
    return;
  }
  const auto key = spec.rendezvous.key ? std::optional(*spec.rendezvous.key) : std::nullopt;
  const auto status = rendezvous::fetch_status(host, port, "", 1000ms, key);
  facts->listener = status.ok() ? "dtrun" : status.status().message();
}

std::string wrong_meaning(const std::string& host, const std::vector<std::string>& own) {
  const Meaning meaning = meaning_of(host);
  if (meaning.addresses.empty()) return host + " has no address (" + meaning.error + ")";
  const bool its_own = std::ranges::any_of(
      meaning.addresses, [&](const std::string& one) { return std::ranges::count(own, one) > 0; });
  return its_own ? "" : host + " means " + meaning.addresses.front();
}

}  // namespace dtrun::cmd
