// Any bytes as a file and as a list of hosts, and as filters of what these name: a refusal in one line, or
// hosts that ssh would take, each name once, that come out the same when they are written down again.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <set>

#include "cmd/hosts/host_filter.h"
#include "cmd/hosts/hostfile.h"
#include "proto/core/contract.h"

using namespace dtrun::cmd;

namespace {

constexpr std::size_t kMany = 1000;  // hosts that are looked at one by one; more would take seconds

void check_refusal(const dtrun::Status& status) {
  const auto& message = status.message();
  if (message.empty() || message.size() > 1000) std::abort();
  if (std::ranges::any_of(message, [](char c) { return static_cast<unsigned char>(c) < ' '; })) std::abort();
}

void check_hosts(const std::vector<Host>& hosts) {
  if (hosts.empty() || hosts.size() > dtrun::kMaxNodes) std::abort();
  if (hosts.size() > kMany) return;
  std::set<std::string> names;
  for (const auto& host : hosts) {
    if (!is_destination(host.destination) || !names.insert(host.name()).second) std::abort();
    if (host.slots < 0 || host.slots > dtrun::kMaxWorkersPerNode || !host.gpus.empty()) std::abort();
  }
}

std::string written(const std::vector<Host>& hosts) {
  std::string text;
  for (const auto& host : hosts) {
    const auto name = host.name();
    const bool is_address = name.find(':') != name.npos;
    text += host.destination.substr(0, host.destination.size() - name.size());
    text += is_address ? "[" + name + "]" : name;
    text += host.slots > 0 ? " slots=" + std::to_string(host.slots) + "\n" : "\n";
  }
  return text;
}

void check_filter(const std::vector<Host>& hosts, const std::string& filter) {
  for (const bool include : {true, false}) {
    const auto left = filter_hosts(hosts, include ? filter : "", include ? "" : filter);
    if (!left.ok()) {
      check_refusal(left.status());
      continue;
    }
    if (left.value().empty() || left.value().size() > hosts.size()) std::abort();
    for (const auto& host : left.value()) {
      if (!host.gpus.empty() && static_cast<int>(host.gpus.size()) != host.slots) std::abort();
      if (!std::ranges::is_sorted(host.gpus)) std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto list = parse_host_list(text, "-H");
  if (list.ok()) return check_hosts(list.value()), 0;
  check_refusal(list.status());

  // The first line is a filter as well.
  const auto hosts = parse_hostfile(text, "hosts");
  if (!hosts.ok()) return check_refusal(hosts.status()), 0;
  check_hosts(hosts.value());
  if (hosts.value().size() > kMany) return 0;
  const auto again = parse_hostfile(written(hosts.value()), "again");
  if (!again.ok() || again.value() != hosts.value()) std::abort();
  check_filter(hosts.value(), text.substr(0, text.find_first_of("\r\n")));
  return 0;
}
