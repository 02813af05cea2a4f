#include "cmd/check/core/report.h"

#include <algorithm>
#include <vector>

#include "proto/core/exit_codes.h"
#include "proto/core/text.h"

namespace dtrun::cmd {
namespace {

constexpr std::size_t kTitleWidth = 56;

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size() + 2), ' ');
  return text;
}

std::string mark_of(Grade grade) {
  return grade == Grade::kPassed ? "[ok]" : grade == Grade::kWarning ? "[!] " : "[x] ";
}

std::string line_of(const Finding& finding, std::size_t width, const Palette& palette) {
  const std::string text = mark_of(finding.grade) + " " + padded(finding.check, width) +
                           (finding.nodes.empty() ? "" : join(finding.nodes) + ": ") + finding.text;
  const std::string remedy =
      finding.remedy.empty() ? "" : "\n       " + palette.hint("do: " + finding.remedy);
  return "  " + (finding.grade == Grade::kFailed ? palette.error(text) : text) + remedy + "\n";
}

std::string section_text(const ReportSection& section, bool all, const Palette& palette) {
  std::size_t width = 0;
  std::vector<std::string> passed;
  for (const Finding& finding : section.findings) {
    width = std::max(width, finding.check.size() + 2);
    if (finding.grade == Grade::kPassed) passed.push_back(finding.check);
  }
  const std::string note = section.note.empty() ? std::to_string(passed.size()) + " passed" : section.note;
  std::string text = padded(section.title, kTitleWidth) + note + "\n";
  for (const Finding& finding : section.findings)
    if (all || finding.grade != Grade::kPassed) text += line_of(finding, width, palette);
  if (!all && !passed.empty()) text += "  [ok] " + join(passed) + "\n";
  return text;
}

std::int64_t count_of(const Report& report, Grade grade) {
  std::int64_t count = 0;
  for (const ReportSection& section : report.sections)
    count += std::ranges::count(section.findings, grade, &Finding::grade);
  return count;
}

std::string verdict_of(const Report& report, bool all) {
  const std::int64_t failed = count_of(report, Grade::kFailed), warned = count_of(report, Grade::kWarning);
  const std::int64_t made = failed + warned + count_of(report, Grade::kPassed);
  std::string text = failed > 0   ? counted(failed, "check") + " failed"
                     : warned > 0 ? counted(warned, "warning") + ", no check failed"
                                  : "all checks passed";
  if (failed > 0 && warned > 0) text += ", " + counted(warned, "warning");
  if (report.missing > 0) text = counted(report.missing, "node") + " did not come; of the others " + text;
  return text + (all ? "" : "  (-v: all " + std::to_string(made) + " checks; --json)") + "\n";
}

}  // namespace

int exit_code_of(const Report& report, bool strict) {
  if (report.missing > 0) return kExitUnavailable;
  return count_of(report, Grade::kFailed) > 0 || (strict && count_of(report, Grade::kWarning) > 0) ? 1 : 0;
}

std::string report_text(const Report& report, bool all, const Palette& palette) {
  std::string text;
  for (const ReportSection& section : report.sections) text += section_text(section, all, palette);
  return text + verdict_of(report, all);
}

}  // namespace dtrun::cmd
