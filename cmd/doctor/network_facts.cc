#include <net/if.h>
#include <netdb.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <thread>

#include "agent/local_address.h"
#include "cmd/doctor/node_facts.h"
#include "cmd/options/values.h"
#include "proto/base/descriptor.h"
#include "proto/base/ids.h"
#include "proto/base/text_in.h"
#include "rendezvous/client/endpoint.h"
#include "rendezvous/client/status_client.h"

namespace dtrun::doctor {
namespace {

using namespace std::chrono_literals;

constexpr auto kForNames = 1000ms;

// The name service may never answer, and cannot be interrupted: who asks too long is left behind.
template <typename Ask>
auto answer_in_time(Ask ask) -> std::optional<decltype(ask())> {
  const auto promise = std::make_shared<std::promise<decltype(ask())>>();
  auto answer = promise->get_future();
  std::thread([promise, ask = std::move(ask)] { promise->set_value(ask()); }).detach();
  if (answer.wait_for(kForNames) != std::future_status::ready) return std::nullopt;
  return answer.get();
}

std::string numeric(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST] = {};
  return getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

struct Meaning {
  std::vector<std::string> addresses;
  std::string error;
};

Meaning meaning_of(const std::string& host) {
  const auto found = answer_in_time([host] {
    Meaning meaning;
    const rendezvous::Addresses addresses = rendezvous::look_up(host, 0);
    meaning.error = addresses.error;
    for (const addrinfo* one = addresses.list.get(); one != nullptr; one = one->ai_next)
      meaning.addresses.push_back(numeric(one->ai_addr, one->ai_addrlen));
    return meaning;
  });
  return found.value_or(Meaning{.addresses = {}, .error = "the name service does not answer"});
}

// Empty: the address has no name, or none comes in time.
std::string name_of(const std::string& address) {
  const auto found = answer_in_time([address]() -> std::string {
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST;
    addrinfo* parsed = nullptr;
    if (getaddrinfo(address.c_str(), nullptr, &hints, &parsed) != 0) return "";
    char name[NI_MAXHOST] = {};
    const int fault =
        getnameinfo(parsed->ai_addr, parsed->ai_addrlen, name, sizeof name, nullptr, 0, NI_NAMEREQD);
    freeaddrinfo(parsed);
    return fault == 0 ? name : "";
  });
  return found.value_or("");
}

std::string first_label(const std::string& name) { return name.substr(0, name.find('.')); }

// The interface that has this address.
std::string interface_of(const std::string& address) {
  for (const auto& [name, own] : agent::own_interfaces())
    if (own == address) return name;
  return "";
}

void read_interface(RouteFacts* route) {
  const std::string folder = "/sys/class/net/" + route->interface + "/";
  const Descriptor socket_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  route->interface.copy(request.ifr_name, sizeof request.ifr_name - 1);
  if (ioctl(socket_.get(), SIOCGIFMTU, &request) == 0) route->mtu = request.ifr_mtu;
  route->speed = static_cast<int>(number_in(folder + "speed").value_or(-1));
  const auto counter = [&](const char* name) {
    return std::max<std::int64_t>(0, number_in(folder + "statistics/" + name).value_or(0));
  };
  route->errors = counter("rx_errors") + counter("tx_errors");
  route->packets = counter("rx_packets") + counter("tx_packets");
  route->carrier_losses = number_in(folder + "carrier_down_count").value_or(-1);
}

}  // namespace

NameFacts read_names() {
  NameFacts name{.host = host_name()};
  Meaning meaning = meaning_of(name.host);
  name.means = std::move(meaning.addresses);
  name.error = std::move(meaning.error);
  name.own = agent::own_addresses("");
  return name;
}

// A UDP socket that is connected sends nothing, and knows its way.
RouteFacts read_route(const std::string& host, int port) {
  RouteFacts route;
  const Meaning meaning = meaning_of(host);
  if (meaning.addresses.empty()) {
    route.problem = meaning.error;
    return route;
  }
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* target = nullptr;
  if (getaddrinfo(meaning.addresses.front().c_str(), std::to_string(port).c_str(), &hints, &target) != 0)
    return route;
  const Descriptor socket_(socket(target->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  auto* const generic = reinterpret_cast<sockaddr*>(&own);
  if (connect(socket_.get(), target->ai_addr, target->ai_addrlen) != 0)
    route.problem = std::strerror(errno);
  else if (getsockname(socket_.get(), generic, &size) == 0)
    route.address = agent::reachable_address(numeric(generic, size), host);
  freeaddrinfo(target);
  route.interface = interface_of(route.address);
  if (!route.interface.empty()) read_interface(&route);
  return route;
}

void read_listener(NameFacts* name, const std::string& host, int port, const JobSpec& spec) {
  name->endpoint = cmd::endpoint_text({.host = host, .port = port});
  name->endpoint_is_ours = agent::home_of(host).listen_address.has_value();
  const rendezvous::Interrupt interrupt;
  const rendezvous::Dialled dialled = rendezvous::dial(host, port, 700ms, interrupt);
  if (dialled.fd < 0) {
    name->listener = "nobody";
    return;
  }
  close(dialled.fd);
  const auto key = spec.rendezvous.key ? std::optional(*spec.rendezvous.key) : std::nullopt;
  const auto status = rendezvous::fetch_status(host, port, "", 1000ms, key);
  name->listener = status.ok() ? "dtrun" : status.status().message();
}

PathFacts look_up_peer(const std::string& host, const std::string& address,
                       const std::vector<std::string>& own) {
  PathFacts path;
  const Meaning meaning = meaning_of(host);
  const auto is_its_own = [&](const std::string& one) { return std::ranges::count(own, one) > 0; };
  if (meaning.addresses.empty()) {
    path.wrong_name = host + " has no address (" + meaning.error + ")";
  } else if (std::ranges::none_of(meaning.addresses, is_its_own)) {
    path.wrong_name = host + " means " + meaning.addresses.front();
  }
  path.name_fails = !path.wrong_name.empty();
  if (path.name_fails) return path;
  const std::string reverse = name_of(address);
  if (!reverse.empty() && first_label(reverse) != first_label(host))
    path.wrong_name = "its address " + address + " is called " + reverse;
  return path;
}

}  // namespace dtrun::doctor
