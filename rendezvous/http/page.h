// The page of a job, made of the files in page/.
#pragma once

#include <string_view>

namespace dtrun::rendezvous {

extern const std::string_view kPage;  // HTML, with @STATUS@ where the text of `dtrun status` goes
extern const std::string_view kPageScript, kRanksScript;  // JavaScript
extern const std::string_view kPageStyle;                 // CSS
extern const std::string_view kPageIcon;                  // SVG

}  // namespace dtrun::rendezvous
