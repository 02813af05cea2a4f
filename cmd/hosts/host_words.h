// The common part of host files and lists of hosts: one word that names hosts, and the list that it adds to.
// Messages do not say where the word is; the caller does.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cmd/hosts/host.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

// "[USER@]NAME[:SLOTS]", where NAME may have groups: "n[1-3,7]-ib". Their zeros are kept: "[08-11]" is 08,
// 09, 10, 11. An IPv6 address with slots is in brackets; without it may be.
Result<std::vector<Host>> parse_host_word(std::string_view word);

// All names of "n[1-3]-ib[0-1]", the last group running fastest, with zeros kept as above. EX_USAGE if it is
// misspelt or names more than kMaxNodes.
Result<std::vector<std::string>> expand_groups(std::string_view name);

// Up to a comma that is not in brackets.
std::string_view first_word(std::string_view list);

// 1 to kMaxWorkersPerNode; 0: no such number.
int read_slots(std::string_view text);

// For a message: without control characters, and of at most `most` bytes.
std::string shown(std::string_view text, std::size_t most = 80);

// The hosts so far. A host may come again without slots, each time for one slot more.
class HostRoll {
 public:
  // `place`: where it is named, for messages about a later one ("line 3").
  Status add(const Host& host, const std::string& place, int exit_code);

  std::vector<Host> hosts() && { return std::move(hosts_); }
  bool empty() const { return hosts_.empty(); }

 private:
  struct NamedHost {
    std::size_t index;  // in hosts_
    std::string place;  // where it was named first
    bool said;          // its slots
  };

  std::vector<Host> hosts_;
  std::unordered_map<std::string, NamedHost> by_name_;
  int named_ = 0;
};

}  // namespace dtrun::cmd
