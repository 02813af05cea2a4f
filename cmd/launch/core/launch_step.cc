#include "cmd/launch/core/launch_step.h"

#include <algorithm>

namespace dtrun::cmd {

void LaunchStep::tell(const std::vector<HostMessage>& lines, bool error) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (const auto& [index, text] : lines) {
    const std::string& wanted = text;
    const auto found = std::ranges::find_if(groups, [&](const auto& group) { return group.first == wanted; });
    if (found == groups.end())
      groups.push_back({text, {index}});
    else
      found->second.push_back(index);
  }
  constexpr std::size_t kNamed = 8;
  for (const auto& [text, members] : groups) {
    std::string names;
    for (std::size_t i = 0; i < std::min(members.size(), kNamed); ++i)
      names += (i == 0 ? "" : ", ") + name(members[i]);
    if (members.size() > kNamed) names += " and " + std::to_string(members.size() - kNamed) + " more";
    say(names + ": " + text, error);
  }
}

void LaunchStep::hang_up_all() {
  for (int i = 0; i < count(); ++i) emit(launch_action::HangUp{i});
}

void LaunchStep::finish(int exit_code) {
  s_.finished = true;
  emit(launch_action::Finish{exit_code});
}

}  // namespace dtrun::cmd
