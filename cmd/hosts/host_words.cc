#include "cmd/hosts/host_words.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "proto/core/contract.h"
#include "proto/core/number.h"

namespace dtrun::cmd {
namespace {

// A file with a line for each slot of each host is longer than one with a line for each host.
constexpr int kMaxNamed = 4 * kMaxNodes;
constexpr std::size_t kMostDigits = 18;  // of a number in brackets: some are dates

Status not_a_host(const std::string& message) { return {kExitUsage, message}; }

std::optional<std::int64_t> read_number(std::string_view digits, std::int64_t most) {
  const auto number = parse_number<std::int64_t>(digits);
  return number && *number >= 0 && *number <= most ? number : std::nullopt;
}

// With or without a zone: "fe80::1%eth0".
bool is_ipv6(std::string_view text) {
  const auto percent = text.find('%');
  const auto is_of_zone = [](unsigned char c) { return c > ' ' && c < 0x7f && c != '[' && c != ']'; };
  if (percent != text.npos) {
    const auto zone = text.substr(percent + 1);
    if (zone.empty() || !std::ranges::all_of(zone, is_of_zone)) return false;
  }
  in6_addr address;
  const std::string numbers(text.substr(0, percent));
  return inet_pton(AF_INET6, numbers.c_str(), &address) == 1;
}

// "08-11" or "7", appended to `values`.
Status expand_range(std::string_view range, std::vector<std::string>* values) {
  const auto dash = range.find('-');
  const auto first = range.substr(0, dash);
  const auto last = dash == range.npos ? first : range.substr(dash + 1);
  constexpr std::int64_t kMost = 999'999'999'999'999'999;
  const auto from = read_number(first, kMost), to = read_number(last, kMost);
  if (!from || !to || *to < *from || first.size() > kMostDigits) {
    return not_a_host("expected numbers and ranges like [1-3,7] in brackets, not '" + shown(range) + "'");
  }
  if (*to - *from >= kMaxNodes - static_cast<int>(values->size())) {
    return not_a_host("more than " + std::to_string(kMaxNodes) + " hosts");
  }
  const std::size_t width = first.starts_with('0') ? first.size() : 0;
  for (std::int64_t number = *from; number <= *to; ++number) {
    const auto digits = std::to_string(number);
    values->push_back(std::string(width > digits.size() ? width - digits.size() : 0, '0') + digits);
  }
  return {};
}

// The inside of brackets.
Result<std::vector<std::string>> expand_group(std::string_view group) {
  std::vector<std::string> values;
  while (true) {
    const auto comma = group.find(',');
    if (const auto status = expand_range(group.substr(0, comma), &values); !status.ok()) return status;
    if (comma == group.npos) return values;
    group.remove_prefix(comma + 1);
  }
}

struct HostWordParts {
  std::string_view name;
  bool address = false;  // an IPv6 address: no groups
  bool has_slots = false;
  std::string_view slots = {};
};

// `word` without its user.
Result<HostWordParts> take_apart(std::string_view word) {
  const auto close = word.find(']');
  if (word.starts_with('[') && close != word.npos && word.substr(0, close).find(':') != word.npos) {
    HostWordParts parts{.name = word.substr(1, close - 1), .address = true};
    const auto rest = word.substr(close + 1);
    if (!is_ipv6(parts.name) || (!rest.empty() && rest.front() != ':')) {
      return not_a_host("expected an IPv6 address in brackets, [ADDRESS] or [ADDRESS]:SLOTS");
    }
    parts.has_slots = !rest.empty();
    if (parts.has_slots) parts.slots = rest.substr(1);
    return parts;
  }
  if (is_ipv6(word)) return HostWordParts{.name = word, .address = true};
  const auto colon = word.find(':');
  if (colon == word.npos) return HostWordParts{.name = word};
  if (word.find(':', colon + 1) != word.npos) {
    return not_a_host("expected HOST:SLOTS; an IPv6 address with slots is written [ADDRESS]:SLOTS");
  }
  return HostWordParts{.name = word.substr(0, colon), .has_slots = true, .slots = word.substr(colon + 1)};
}

Status check_destination(const std::string& destination) {
  if (is_destination(destination)) return {};
  return not_a_host("'" + shown(destination) +
                    "' is no host that ssh would take: expected HOST or USER@HOST");
}

}  // namespace

std::string_view first_word(std::string_view text) {
  bool inside = false;
  std::size_t end = 0;
  for (; end < text.size() && (inside || text[end] != ','); ++end) {
    if (text[end] == '[') inside = true;
    if (text[end] == ']') inside = false;
  }
  return text.substr(0, end);
}

Result<std::vector<std::string>> expand_groups(std::string_view name) {
  std::vector<std::string> names = {""};
  while (!name.empty()) {
    const auto open = std::min(name.find('['), name.size());
    // Looked at here, before one long name becomes many.
    if (names.front().size() + open > kLongestDestination) return not_a_host("longer than any host's name");
    for (auto& one : names) one += name.substr(0, open);
    name.remove_prefix(open);
    if (names.front().find(']') != std::string::npos) return not_a_host("']' without '['");
    if (name.empty()) break;
    const auto close = name.find(']');
    if (close == name.npos) return not_a_host("'[' without ']'");
    ASSIGN_OR_RETURN(const auto values, expand_group(name.substr(1, close - 1)));
    if (names.size() * values.size() > kMaxNodes) {
      return not_a_host("more than " + std::to_string(kMaxNodes) + " hosts");
    }
    std::vector<std::string> longer;
    for (const auto& one : names) {
      for (const auto& value : values) longer.push_back(one + value);
    }
    names = std::move(longer);
    name.remove_prefix(close + 1);
  }
  return names;
}

int read_slots(std::string_view text) {
  return static_cast<int>(read_number(text, kMaxWorkersPerNode).value_or(0));
}

std::string shown(std::string_view text, std::size_t most) {
  const bool is_cut = text.size() > most;
  const auto is_inside_character = [&] { return (static_cast<unsigned char>(text[most]) & 0xc0) == 0x80; };
  while (is_cut && most > 0 && is_inside_character()) --most;
  std::string result(text.substr(0, most));
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; };
  std::ranges::replace_if(result, is_control, '?');
  return is_cut ? result + "…" : result;
}

Result<std::vector<Host>> parse_host_word(std::string_view word) {
  if (word.find("://") != word.npos)
    return not_a_host("expected HOST or USER@HOST, not a URL: a host's port belongs in ~/.ssh/config (Port)");
  const auto at = word.rfind('@');
  const auto user = at == word.npos ? std::string_view{} : word.substr(0, at + 1);
  ASSIGN_OR_RETURN(const auto parts, take_apart(word.substr(user.size())));
  const auto& [name, address, has_slots, slots_text] = parts;
  const int slots = read_slots(slots_text);
  if (has_slots && slots == 0) {
    return not_a_host("expected slots from 1 to " + std::to_string(kMaxWorkersPerNode) + " after ':', not '" +
                      shown(slots_text) + "'");
  }
  ASSIGN_OR_RETURN(auto names,
                   address ? Result<std::vector<std::string>>({std::string(name)}) : expand_groups(name));
  std::vector<Host> hosts;
  for (const auto& one : names) {
    const auto destination = std::string(user) + one;
    if (const auto status = check_destination(destination); !status.ok()) return status;
    hosts.push_back({.destination = destination, .slots = slots});
  }
  return hosts;
}

Status HostRoll::add(const Host& host, const std::string& place, int exit_code) {
  const auto name = host.name();
  if (++named_ > kMaxNamed)
    return {exit_code, "hosts are named more than " + std::to_string(kMaxNamed) + " times"};
  const auto [found, is_new] = by_name_.try_emplace(name, NamedHost{hosts_.size(), place, host.slots > 0});
  if (is_new) {
    hosts_.push_back(host);
    if (hosts_.size() <= kMaxNodes) return {};
    return {exit_code, "more than " + std::to_string(kMaxNodes) + " hosts"};
  }
  const auto& first = found->second;
  auto& before = hosts_[first.index];
  if (before.destination != host.destination) {
    return {exit_code,
            host.destination + " is " + before.destination + " in " + first.place + ": a host has one user"};
  }
  if (first.said || host.slots > 0) {
    return {exit_code, name + " is also in " + first.place +
                           ": name it once with its slots, or without slots once for each"};
  }
  before.slots = std::max(before.slots, 1) + 1;
  if (before.slots <= kMaxWorkersPerNode) return {};
  return {exit_code, name + " is named more than " + std::to_string(kMaxWorkersPerNode) + " times"};
}

}  // namespace dtrun::cmd
