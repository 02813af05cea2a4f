#include "cmd/history/html.h"

namespace dtrun::cmd {

std::string for_script(const std::string& json) {
  std::string safe;
  // In JSON a "<" stands in strings alone.
  for (const char c : json) safe += c == '<' ? "\\u003c" : std::string(1, c);
  return safe;
}

std::string table_of(const std::vector<std::string>& head,
                     const std::vector<std::vector<std::string>>& rows) {
  std::string text = "<div class=\"wide\"><table>";
  if (!head.empty()) {
    text += "<thead><tr>";
    for (const std::string& cell : head) text += "<th>" + cell + "</th>";
    text += "</tr></thead>";
  }
  text += "<tbody>";
  for (const auto& row : rows) {
    text += "<tr>";
    for (const std::string& cell : row) text += "<td>" + cell + "</td>";
    text += "</tr>\n";
  }
  return text + "</tbody></table></div>\n";
}

}  // namespace dtrun::cmd
