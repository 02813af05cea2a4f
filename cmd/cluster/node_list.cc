#include "cmd/cluster/node_list.h"

#include "cmd/cluster/numbers.h"
#include "cmd/hosts/host_words.h"
#include "proto/core/contract.h"

namespace dtrun::cmd {
namespace {

Status too_many() { return {kExitUsage, "more than " + std::to_string(kMaxNodes) + " nodes"}; }

}  // namespace

Result<std::vector<std::string>> parse_node_list(std::string_view list) {
  std::vector<std::string> nodes;
  for (;;) {
    const std::string_view word = first_word(list);
    if (word.empty()) return Status(kExitUsage, "expected nodes between commas, like n[1-3],m07");
    ASSIGN_OR_RETURN(const std::vector<std::string> names, expand_groups(word));
    if (nodes.size() + names.size() > kMaxNodes) return too_many();
    nodes.insert(nodes.end(), names.begin(), names.end());
    if (word.size() == list.size()) return nodes;
    list.remove_prefix(word.size() + 1);
  }
}

Result<std::vector<int>> parse_counts(std::string_view list) {
  std::vector<int> counts;
  for (;;) {
    const std::string_view word = list.substr(0, list.find(','));
    const std::size_t open = word.find("(x");
    const auto count = whole_number(word.substr(0, open), kMaxWorkersPerNode);
    std::optional<int> times = 1;
    if (open != word.npos)
      times = word.ends_with(')') ? whole_number(word.substr(open + 2, word.size() - open - 3), kMaxNodes)
                                  : std::nullopt;
    if (!count || !times)
      return Status(kExitUsage, "expected numbers like 2(x3),1, not '" + shown(word) + "'");
    if (counts.size() + static_cast<std::size_t>(*times) > kMaxNodes) return too_many();
    counts.insert(counts.end(), static_cast<std::size_t>(*times), *count);
    if (word.size() == list.size()) return counts;
    list.remove_prefix(word.size() + 1);
  }
}

}  // namespace dtrun::cmd
