// dygraphs, which draws curves in a browser: the distribution's, as this program was built with it.
#pragma once

#include <string_view>

namespace dtrun {

extern const std::string_view kDygraphs;       // JavaScript; defines Dygraph. Contains no "</script"
extern const std::string_view kDygraphsStyle;  // CSS

}  // namespace dtrun
