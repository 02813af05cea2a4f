#include "cmd/cluster/numbers.h"

#include "cmd/hosts/host_words.h"
#include "proto/core/contract.h"
#include "proto/core/number.h"

namespace dtrun::cmd {

std::string text_of(const ClusterEnvironment& cluster, const std::string& name) {
  const auto found = cluster.variables.find(name);
  return found == cluster.variables.end() ? "" : found->second;
}

bool has(const ClusterEnvironment& cluster, const std::string& name) {
  return !text_of(cluster, name).empty();
}

std::optional<int> whole_number(std::string_view text, int most) {
  const auto number = parse_number<int>(text);
  return number && text.front() != '-' && *number <= most ? number : std::nullopt;
}

Status read_numbers(const ClusterEnvironment& cluster, const std::string& job,
                    std::initializer_list<NumberIn> numbers) {
  for (const auto& [name, least, to] : numbers) {
    ASSIGN_OR_RETURN(*to, number_of(cluster, name, least, job));
  }
  return {};
}

Status contradiction(const std::string& job, const std::string& what) {
  return {kExitUsage, job + ": " + what + "; --standalone runs on this node alone"};
}

Result<int> number_of(const ClusterEnvironment& cluster, const std::string& name, int least,
                      const std::string& job) {
  // A job of more than kMaxNodes nodes may have that many tasks on each.
  constexpr int kMost = kMaxNodes * kMaxWorkersPerNode;
  const std::string text = text_of(cluster, name);
  if (const auto number = whole_number(text, kMost); number && *number >= least) return *number;
  if (!cluster.variables.contains(name)) return contradiction(job, name + " is not set");
  return contradiction(job, name + "=" + shown(text) + ": expected a number from " + std::to_string(least) +
                                " to " + std::to_string(kMost));
}

std::string run_id_of(const std::string& name) {
  constexpr std::size_t kLongest = 128;
  std::string id = name.substr(0, kLongest);
  for (char& c : id) {
    const bool fits =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
    if (!fits) c = '-';
  }
  const std::size_t begin = id.find_first_not_of(".-");
  return begin == std::string::npos ? "" : id.substr(begin);
}

}  // namespace dtrun::cmd
