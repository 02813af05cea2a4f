#include "cmd/doctor/core/finding.h"

#include <algorithm>

#include "proto/core/exit_codes.h"

namespace dtrun::doctor {

int exit_code_of(const Report& report, bool strict) {
  if (report.missing > 0) return kExitUnavailable;
  const Grade worst_allowed = strict ? Grade::kPassed : Grade::kWarning;
  const auto fails = [&](const Finding& finding) { return finding.grade > worst_allowed; };
  return std::ranges::any_of(
             report.sections,
             [&](const Section& section) { return std::ranges::any_of(section.findings, fails); })
             ? 1
             : 0;
}

}  // namespace dtrun::doctor
