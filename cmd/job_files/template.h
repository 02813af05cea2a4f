// Text with places for values: @name@.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace dtrun::cmd {

using TemplateValues = std::map<std::string, std::string, std::less<>>;

// `text` with each @name@ of `values` replaced; an @ that begins none of them stays. A line with a place
// whose value is empty is left out. A value of several lines stands alone on its line, and each of its lines
// is indented like the place.
std::string fill_in(std::string_view text, const TemplateValues& values);

}  // namespace dtrun::cmd
