// Any bytes as a file of variables and as an environment: a refusal in one line, or rules after which nothing
// travels twice, nothing without a name, and never the job's key.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <set>

#include "cmd/hosts/travelling_environment.h"

using namespace dtrun::cmd;

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

void check_travelling(const std::vector<std::string>& entries) {
  std::set<std::string> names;
  for (const auto& entry : entries) {
    const auto name = entry.substr(0, entry.find('='));
    if (name.empty() || name.size() == entry.size() || name == "DTRUN_KEY") std::abort();
    if (!names.insert(name).second || !masked(entry).starts_with(name + "=")) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto own = lines_of(text);
  check_travelling(travelling_environment(own, {}));

  const auto file = parse_environment_file(text, "env");
  if (!file.ok()) {
    if (!file.status().message().starts_with("env:")) std::abort();
    return 0;
  }
  auto rules = file.value();
  check_travelling(travelling_environment(own, rules));
  // Each rule's variable travels, unless not_set_here() reports it.
  const auto travelling = travelling_environment({}, rules);
  check_travelling(travelling);
  std::set<std::string> names;
  for (const auto& rule : rules) names.insert(rule.name);
  if (travelling.size() + not_set_here({}, rules).size() != names.size()) std::abort();

  rules.push_back({EnvironmentRule::kStay, text.substr(0, 20)});
  check_travelling(travelling_environment(own, rules));
  return 0;
}
