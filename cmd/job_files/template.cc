#include "cmd/job_files/template.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "proto/core/text.h"

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
  for (const std::string& line : split(text))
    if (const auto filled_in = filled_line(line, values)) filled += *filled_in + "\n";
  return filled;
}

}  // namespace dtrun::cmd
