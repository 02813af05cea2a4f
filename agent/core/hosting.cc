#include "agent/core/hosting.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "proto/core/text.h"

namespace dtrun {
namespace {

// All addresses of a machine; those of IPv6 too.
constexpr char kAnyAddress[] = "0.0.0.0";

bool is_dotted(std::string_view host) {
  return host.find_first_not_of("0123456789.") == std::string_view::npos &&
         std::ranges::count(host, '.') == 3;
}

bool is_name(const std::string& host) {
  return host != "localhost" && !is_dotted(host) && host.find(':') == std::string::npos;
}

// The address to listen on as `host`; nothing if that is no address of this machine, or a name.
std::optional<std::string> own_address(const std::string& host, const OwnAddresses& own) {
  if (host == "localhost") return own.localhost;
  const bool loopback = (is_dotted(host) && host.starts_with("127.")) || host == "::1";
  if (loopback || std::ranges::count(own.numeric, host) > 0) return host;
  return std::nullopt;
}

// The address of a process that is told to host the coordinator, by whatever name or address others reach it.
std::string address_to_listen_on(const std::string& host, const HostingQuestion& question,
                                 const OwnAddresses& own) {
  return question.any_address ? kAnyAddress : own_address(host, own).value_or(kAnyAddress);
}

Hosting one_host(const HostingQuestion& question, const OwnAddresses& own) {
  const std::string& host = question.hosts.front();
  const std::optional<bool> placed = question.placement ? question.placement->hosts : std::nullopt;
  const std::optional<bool> told = question.is_host ? question.is_host : placed;
  if (told == true) return FixedHost{host, question.ports, address_to_listen_on(host, question, own)};
  if (!told && is_name(host)) return FixedHost{host, question.ports, std::nullopt};
  const std::optional<std::string> address = told ? std::nullopt : own_address(host, own);
  if (address) return FixedHost{host, question.ports, address};
  return External{host, question.ports};
}

Candidates candidates(const HostingQuestion& question, const OwnAddresses& own) {
  Candidates list{.hosts = question.hosts, .ports = question.ports};
  list.name = question.names.empty() ? join(list.hosts, ",") + " port " + std::to_string(list.ports.front())
                                     : join(question.names, ",");
  if (question.placement) {
    list.own = question.placement->own_host;
    list.first_start = question.placement->starts_once;
  }
  if (question.is_host == false) list.own = -1;
  if (list.own.value_or(-1) >= 0)
    list.listen_address =
        address_to_listen_on(list.hosts[static_cast<std::size_t>(*list.own)], question, own);
  return list;
}

// A majority of the hosts that a cluster names must be there from the start, so not where the job may begin
// with fewer.
bool majority_is_there(const HostingQuestion& question) {
  const int hosts = static_cast<int>(question.hosts.size());
  if (!question.placement || question.placement->starts_once) return true;
  return question.max_nodes >= hosts && question.max_nodes - question.min_nodes < hosts / 2 + 1;
}

}  // namespace

// Of three hosts or more a majority knows which half of a cut network it is; of two neither does.
HostingDecision decide_hosting(const HostingQuestion& question, const OwnAddresses& own) {
  const std::vector<std::string>& hosts = question.hosts;
  if (hosts.empty()) return {Standalone{}};
  HostingDecision one{one_host(question, own)};
  if (hosts.size() == 1 || !majority_is_there(question)) {
    if (question.failover != true) return one;
    return {one.hosting, "--rdzv_conf failover has no effect: --rdzv_endpoint names one host"};
  }
  if (question.failover == false) return one;
  const bool two = hosts.size() == 2;
  if (two && !question.failover)
    return {one.hosting,
            "only " + hosts[0] + " hosts the coordinator: if it is lost, " + hosts[1] +
                " does not take over, since it cannot tell that from a cut network. Name a third "
                "host, or give --rdzv_conf failover=always, with which both sides of a cut may "
                "go on"};
  Candidates list = candidates(question, own);
  list.alone = two;
  if (two || !question.failover) return {std::move(list)};
  return {std::move(list),
          "--rdzv_conf failover=always has no effect: of three hosts or more a majority goes on"};
}

std::string list_of(const Candidates& candidates, const std::string& run_id) {
  return candidates.name + " of run " + run_id + (candidates.alone ? " (failover=always)" : "");
}

std::vector<std::string> hosts_of(const Hosting& hosting) {
  if (const auto* external = std::get_if<External>(&hosting)) return {external->host};
  if (const auto* fixed = std::get_if<FixedHost>(&hosting)) return {fixed->host};
  if (const auto* list = std::get_if<Candidates>(&hosting)) return list->hosts;
  return {};
}

std::vector<int> ports_of(const Hosting& hosting) {
  if (const auto* external = std::get_if<External>(&hosting)) return external->ports;
  if (const auto* fixed = std::get_if<FixedHost>(&hosting)) return fixed->ports;
  if (const auto* list = std::get_if<Candidates>(&hosting)) return list->ports;
  return {};
}

std::optional<bool> may_host(const Hosting& hosting) {
  if (const auto* fixed = std::get_if<FixedHost>(&hosting))
    return fixed->listen_address ? std::optional(true) : std::nullopt;
  if (const auto* list = std::get_if<Candidates>(&hosting))
    return list->own ? std::optional(*list->own >= 0) : std::nullopt;
  return std::holds_alternative<Standalone>(hosting);
}

}  // namespace dtrun
