// What follows from the facts: one finding for each check that could be made, and all of them as people read
// them.
#pragma once

#include <string>
#include <vector>

#include "proto/core/colour.h"

namespace dtrun::cmd {

enum class Grade { kPassed, kWarning, kFailed };

struct Finding {
  std::string check = {};  // "open files"
  Grade grade = Grade::kPassed;
  std::string text = {};                // what was found
  std::string remedy = {};              // what to do about it; empty where it passed
  std::vector<std::string> nodes = {};  // that it is about; empty: this one, or all
};

struct ReportSection {
  std::string title = {};
  std::string note = {};  // "4 of 4 came"; empty: the number of checks that passed
  std::vector<Finding> findings = {};
};

struct Report {
  std::vector<ReportSection> sections = {};
  int missing = 0;  // nodes that did not come
};

// 0; 1 if a check failed, or one warned and `strict`; EX_UNAVAILABLE if nodes did not come.
int exit_code_of(const Report& report, bool strict);

// Passed checks of a section are folded into one line, unless `all`. The last line is the verdict.
std::string report_text(const Report& report, bool all, const Palette& palette);

}  // namespace dtrun::cmd
