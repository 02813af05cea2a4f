#include "agent/text/python_template.h"

#include <algorithm>

namespace dtrun::agent {
namespace {

// Only ASCII, whatever the locale, as in Python.
bool begins_name(char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool continues_name(char c) { return begins_name(c) || (c >= '0' && c <= '9'); }

std::string_view name_at(std::string_view text) {
  if (text.empty() || !begins_name(text.front())) return {};
  const auto end = std::find_if_not(text.begin(), text.end(), continues_name);
  return text.substr(0, static_cast<std::size_t>(end - text.begin()));
}

// The piece that begins with the "$" at the front of `text`; `length` is how long it is there.
TemplatePiece dollar_at(std::string_view text, std::size_t* length) {
  *length = 1;
  const std::string_view rest = text.substr(1);
  if (rest.starts_with('$')) {
    *length = 2;
  } else if (const auto bare = name_at(rest); !bare.empty()) {
    *length = 1 + bare.size();
    return {text.substr(0, *length), bare};
  } else if (rest.starts_with('{')) {
    const auto braced = name_at(rest.substr(1));
    if (!braced.empty() && rest.substr(1 + braced.size()).starts_with('}')) {
      *length = 3 + braced.size();
      return {text.substr(0, *length), braced};
    }
  }
  return {text.substr(0, 1), {}};
}

}  // namespace

std::vector<TemplatePiece> template_pieces(std::string_view text) {
  std::vector<TemplatePiece> pieces;
  while (!text.empty()) {
    std::size_t length = std::min(text.find('$'), text.size());
    pieces.push_back(length == 0 ? dollar_at(text, &length) : TemplatePiece{text.substr(0, length), {}});
    text.remove_prefix(length);
  }
  return pieces;
}

}  // namespace dtrun::agent
