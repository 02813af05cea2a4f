#include "cmd/hosts/host_filter.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "cmd/hosts/host_words.h"
#include "proto/core/contract.h"
#include "proto/core/nearest.h"
#include "proto/core/number.h"

namespace dtrun::cmd {
namespace {

Status usage(const std::string& message) { return {kExitUsage, message}; }

// The hosts of --include or --exclude, with their GPUs, ascending; no GPU: the host as a whole.
using Chosen = std::map<std::string, std::set<int>, std::less<>>;

std::optional<int> read_gpu(std::string_view digits) {
  const auto gpu = parse_number<int>(digits);
  return gpu && *gpu >= 0 && *gpu < kMaxWorkersPerNode ? gpu : std::nullopt;
}

Result<std::set<int>> read_gpus(std::string_view list) {
  std::set<int> gpus;
  while (true) {
    const auto comma = list.find(',');
    const auto gpu = read_gpu(list.substr(0, comma));
    if (!gpu) return usage("expected indices of GPUs between commas after ':', not '" + shown(list) + "'");
    gpus.insert(*gpu);
    if (comma == list.npos) return gpus;
    list.remove_prefix(comma + 1);
  }
}

// "NAME[:GPU,GPU]" or "[IPV6][:GPU,GPU]", added to `chosen`.
Status read_host(std::string_view word, Chosen* chosen) {
  const bool in_brackets = word.starts_with('[') && word.find(']') != word.npos;
  const auto colon = word.find(':', in_brackets ? word.find(']') : 0);
  auto name = word.substr(0, colon);
  if (in_brackets && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  std::set<int> gpus;
  if (colon != word.npos) {
    ASSIGN_OR_RETURN(gpus, read_gpus(word.substr(colon + 1)));
  }
  const auto [found, is_new] = chosen->try_emplace(std::string(name), gpus);
  if (is_new) return {};
  if (gpus.empty() != found->second.empty()) {
    return usage("'" + shown(name) + "' is named as a whole and by GPUs");
  }
  found->second.merge(gpus);
  return {};
}

Result<Chosen> read_hosts(std::string_view text) {
  Chosen chosen;
  while (true) {
    const auto at = text.find('@');
    if (const auto status = read_host(text.substr(0, at), &chosen); !status.ok()) return status;
    if (at == text.npos) return chosen;
    text.remove_prefix(at + 1);
  }
}

Status unknown_host(const std::string& name, const std::set<std::string>& known) {
  const std::vector<std::string> names(known.begin(), known.end());
  const auto nearest = name.size() > kLongestDestination ? "" : nearest_name(name, names);
  return usage("no host '" + shown(name) + "' among the job's" +
               (nearest.empty() ? ": hosts stand without users, with '@' between them"
                                : " (did you mean " + nearest + "?)"));
}

Status check_known(const Chosen& chosen, const std::vector<Host>& hosts) {
  std::set<std::string> known;
  for (const auto& host : hosts) known.insert(host.name());
  for (const auto& [name, gpus] : chosen) {
    if (!known.contains(name)) return unknown_host(name, known);
  }
  return {};
}

// GPUs that are no slots of a host whose slots are known.
Status check_gpus(const std::set<int>& gpus, const Host& host) {
  if (host.slots == 0 || *gpus.rbegin() < host.slots) return {};
  return usage(host.name() + " has no GPU " + std::to_string(*gpus.rbegin()) + ": its " +
               std::to_string(host.slots) + " slots are 0 to " + std::to_string(host.slots - 1));
}

// `host` without `gpus`; the slots that are left are in host->gpus.
Status exclude_gpus(const std::set<int>& gpus, Host* host) {
  if (host->slots == 0) {
    return usage(host->name() +
                 " has no slots that GPUs could be taken from: say slots=N in the list of hosts, or " +
                 "--include the GPUs that are to be used");
  }
  for (int gpu = 0; gpu < host->slots; ++gpu) {
    if (!gpus.contains(gpu)) host->gpus.push_back(gpu);
  }
  host->slots = static_cast<int>(host->gpus.size());
  return {};
}

Result<std::vector<Host>> included(std::vector<Host> hosts, const Chosen& chosen) {
  std::vector<Host> left;
  for (auto& host : hosts) {
    const auto found = chosen.find(host.name());
    if (found == chosen.end()) continue;
    if (const auto& gpus = found->second; !gpus.empty()) {
      if (const auto status = check_gpus(gpus, host); !status.ok()) return status;
      host.gpus.assign(gpus.begin(), gpus.end());
      host.slots = static_cast<int>(gpus.size());
    }
    left.push_back(std::move(host));
  }
  return left;
}

Result<std::vector<Host>> not_excluded(std::vector<Host> hosts, const Chosen& chosen) {
  std::vector<Host> left;
  for (auto& host : hosts) {
    if (const auto found = chosen.find(host.name()); found != chosen.end()) {
      const auto& gpus = found->second;
      if (gpus.empty()) continue;
      if (const auto status = check_gpus(gpus, host); !status.ok()) return status;
      if (const auto status = exclude_gpus(gpus, &host); !status.ok()) return status;
      if (host.gpus.empty()) continue;
    }
    left.push_back(std::move(host));
  }
  if (left.empty()) return usage("no host is left");
  return left;
}

}  // namespace

Result<std::vector<Host>> filter_hosts(std::vector<Host> hosts, const std::string& include,
                                       const std::string& exclude) {
  if (include.empty() && exclude.empty()) return hosts;
  if (!include.empty() && !exclude.empty()) return usage("--include and --exclude exclude each other");
  const std::string option = include.empty() ? "--exclude" : "--include";
  const auto chosen = read_hosts(include + exclude);
  if (!chosen.ok()) return chosen.status().within(option);
  if (const auto status = check_known(chosen.value(), hosts); !status.ok()) return status.within(option);
  const auto left = include.empty() ? not_excluded(std::move(hosts), chosen.value())
                                    : included(std::move(hosts), chosen.value());
  return left.ok() ? left : left.status().within(option);
}

}  // namespace dtrun::cmd
