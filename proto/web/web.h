// What pages are drawn with in a browser, as text of the program.
#pragma once

#include <string_view>

namespace dtrun {

// dygraphs, which draws curves: the distribution's, as this program was built with it.
extern const std::string_view kDygraphs;       // JavaScript; defines Dygraph. Contains no "</script"
extern const std::string_view kDygraphsStyle;  // CSS
// Ours: after dygraphs.
extern const std::string_view kPictures;       // JavaScript; likewise
extern const std::string_view kPicturesStyle;  // CSS

}  // namespace dtrun
