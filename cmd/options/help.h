// The text of --help, laid out for a width. Pure.
#pragma once

#include <string>

namespace dtrun::cmd {

// `columns` of the terminal; no line is longer, down to 80 columns, and none is longer than people read.
std::string help_text(int columns);

}  // namespace dtrun::cmd
