// A report as JSON: for programs, and from the node that makes it to the others.
#pragma once

#include <optional>
#include <string>

#include "cmd/doctor/core/finding.h"

namespace dtrun::doctor {

// One line, without its end.
std::string report_json(const Report& report, bool strict);

// Nothing for a text that is not one of report_json().
std::optional<Report> report_of(const std::string& json);

}  // namespace dtrun::doctor
