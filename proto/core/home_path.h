// A path as people write it in options and configs, where no shell expands it. Pure.
#pragma once

#include <string>

#include "proto/core/status.h"

namespace dtrun {

// "~" and "~/…" are `home` (null or empty: not known). Refused with EX_USAGE: these without a home, "~name"
// and names of variables at the beginning of a part, for which a folder of that name would be made.
Result<std::string> expanded_path(const std::string& path, const char* home);

}  // namespace dtrun
