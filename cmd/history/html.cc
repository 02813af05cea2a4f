#include "cmd/history/html.h"

namespace dtrun::cmd {

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

std::string for_script(const std::string& json) {
  std::string safe;
  for (const char c : json) {
    if (c == '<')
      safe += "\\u003c";  // in JSON a "<" stands in strings alone
    else
      safe += c;
  }
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
