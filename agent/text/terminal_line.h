// A line as a terminal shows it. Pure.
#pragma once

#include <string>
#include <string_view>

namespace dtrun::agent {

// The part of a line that fits in `columns`, without bytes that move the cursor or change colours.
std::string fitting(std::string_view line, int columns);

// Columns that a line takes which fitting() has made.
int width_of(std::string_view line);

}  // namespace dtrun::agent
