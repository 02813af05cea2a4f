// What follows from the facts: one finding for each check that could be made.
#pragma once

#include <string>
#include <vector>

namespace dtrun::doctor {

enum class Grade { kPassed, kWarning, kFailed };

struct Finding {
  std::string check;  // "open files"
  Grade grade = Grade::kPassed;
  std::string text;                     // what was found
  std::string remedy;                   // what to do about it; empty where it passed
  std::vector<std::string> nodes = {};  // that it is about; empty: this one, or all
};

struct Section {
  std::string title;
  std::string note;  // "4 of 4 came after 1.2 s"
  std::vector<Finding> findings;
};

struct Report {
  std::vector<Section> sections;
  int missing = 0;  // nodes that did not come
};

// 0; 1 if a check failed, or one warned and `strict`; EX_UNAVAILABLE if nodes did not come.
int exit_code_of(const Report& report, bool strict);

}  // namespace dtrun::doctor
