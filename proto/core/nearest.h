// "Did you mean …?": the closest of some known names to a mistyped one.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace dtrun {

// The name with the fewest edits from `typed`; empty if it takes more edits than a third of typed's length
// (rounded up), or as many as there are characters. A swap of two neighbours is one edit; '-' and '_' are the
// same. Failing that, a single name that goes on behind `typed` and a '_'.
std::string nearest_name(std::string_view typed, std::span<const std::string> names);

}  // namespace dtrun
