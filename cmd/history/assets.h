// page.js and page.css, as text of the program.
#pragma once

#include <string_view>

namespace dtrun::cmd {

extern const std::string_view kPageScript, kPageStyle;

}  // namespace dtrun::cmd
