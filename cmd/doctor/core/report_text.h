// A report as people read it.
#pragma once

#include <string>

#include "cmd/doctor/core/finding.h"
#include "proto/core/colour.h"

namespace dtrun::doctor {

// Passed checks of a section are folded into one line, unless `all`. The last line is the verdict.
std::string report_text(const Report& report, bool all, const Palette& palette);

}  // namespace dtrun::doctor
