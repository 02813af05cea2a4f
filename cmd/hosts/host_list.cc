#include "cmd/hosts/host_words.h"
#include "cmd/hosts/hostfile.h"

namespace dtrun::cmd {
Result<std::vector<Host>> parse_host_list(std::string_view text, const std::string& source) {
  HostRoll roll;
  for (int position = 1;; ++position) {
    const auto word = first_word(text);
    if (word.empty()) {
      return Status(kExitUsage, source + ": expected hosts between commas, like a,b[0-3],ada@h:2");
    }
    const auto hosts = parse_host_word(word);
    if (!hosts.ok()) return hosts.status().within(source + ": '" + shown(word) + "'");
    const auto place = "word " + std::to_string(position);
    for (const auto& host : hosts.value()) {
      if (const auto status = roll.add(host, place, kExitUsage); !status.ok()) return status.within(source);
    }
    if (word.size() == text.size()) return std::move(roll).hosts();
    text.remove_prefix(word.size() + 1);
  }
}

}  // namespace dtrun::cmd
