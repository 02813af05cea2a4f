// "Did you mean …?": the closest of some known names to a mistyped one.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace dtrun {

// The name with the fewest edits (a swap of neighbours is one) from `typed`, if that is at most a third of
// its length (rounded up) and at least nearer than replacing it whole; empty otherwise. '-' and '_' count as
// the same.
std::string nearest_name(std::string_view typed, std::span<const std::string> names);

}  // namespace dtrun
