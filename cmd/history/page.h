// A report as one HTML file that needs nothing else: no network, no other file. Without JavaScript all of it
// but the pictures is there, and these have tables. Pure.
#pragma once

#include <string>

#include "cmd/history/run_history.h"

namespace dtrun::cmd {

std::string report_page(const RunHistory& run);
std::string comparison_page(const RunHistory& a, const RunHistory& b, const Comparison& comparison);

}  // namespace dtrun::cmd
