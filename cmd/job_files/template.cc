#include "cmd/job_files/template.h"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace dtrun::cmd {
namespace {

// The line with its values; nothing if one of them is empty.
std::optional<std::string> filled_line(std::string_view line, const TemplateValues& values) {
  std::string text;
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t end = line[at] == '@' ? line.find('@', at + 1) : std::string_view::npos;
    const auto value =
        end == std::string_view::npos ? values.end() : values.find(line.substr(at + 1, end - at - 1));
    if (value == values.end()) {
      text += line[at++];
      continue;
    }
    if (value->second.empty()) return std::nullopt;
    const std::string indent(line.substr(0, line.find_first_not_of(' ')));
    for (const char c : value->second) text += c == '\n' ? "\n" + indent : std::string(1, c);
    at = end + 1;
  }
  return text;
}

}  // namespace

std::string fill_in(std::string_view text, const TemplateValues& values) {
  std::string filled;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    if (const auto line = filled_line(text.substr(at, end - at), values)) filled += *line + "\n";
    at = end + 1;
  }
  return filled;
}

}  // namespace dtrun::cmd
