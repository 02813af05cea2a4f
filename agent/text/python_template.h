// The text of Python's string.Template, in which torchrun takes arguments and line prefixes: "$name" and
// "${name}" are placeholders, "$$" is a dollar sign, any other "$" stands for itself. The caller decides what
// the names mean. Pure.
#pragma once

#include <string_view>
#include <vector>

namespace dtrun::agent {

struct TemplatePiece {
  std::string_view text;  // the text if the name means nothing: as written, but "$" for "$$"
  std::string_view name;  // of a placeholder; empty: none
};

// In order; views into `text`.
std::vector<TemplatePiece> template_pieces(std::string_view text);

}  // namespace dtrun::agent
