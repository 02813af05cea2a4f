#include "cmd/check/core/report.h"

#include <doctest/doctest.h>

namespace dtrun::cmd::report_test {
namespace {

Report three_findings() {
  return {
      .sections = {
          {.title = "this node (node2)",
           .findings = {{.check = "worker", .text = "dtrun-worker 0.1.0"},
                        {.check = "open files",
                         .grade = Grade::kWarning,
                         .text = "limit is 256",
                         .remedy = "ulimit -n 1024"},
                        {.check = "plan", .grade = Grade::kFailed, .text = "no data", .remedy = "find it"},
                        {.check = "memory", .text = "61.2 GiB"}}}}};
}

TEST_CASE("checks that passed are folded into one line, unless all are asked for") {
  CHECK(report_text(three_findings(), false, Palette()) ==
        "this node (node2)                                       2 passed\n"
        "  [!]  open files  limit is 256\n"
        "       do: ulimit -n 1024\n"
        "  [x]  plan        no data\n"
        "       do: find it\n"
        "  [ok] worker, memory\n"
        "1 check failed, 1 warning  (-v: all 4 checks; --json)\n");
  const std::string all = report_text(three_findings(), true, Palette());
  CHECK(all.find("  [ok] worker      dtrun-worker 0.1.0\n") != std::string::npos);
  CHECK(all.ends_with("1 check failed, 1 warning\n"));
}

TEST_CASE("the verdict says how many nodes are missing, and that warnings fail nothing") {
  Report report = three_findings();
  report.missing = 2;
  CHECK(report_text(report, true, Palette())
            .ends_with("2 nodes did not come; of the others 1 check failed, 1 warning\n"));
  report = {.sections = {{.title = "x", .findings = {{.check = "a", .text = "b"}}}}};
  CHECK(report_text(report, true, Palette()).ends_with("all checks passed\n"));
}

TEST_CASE("a warning fails a report only if it is strict") {
  Report report = three_findings();
  CHECK(exit_code_of(report, false) == 1);
  report.sections[0].findings.erase(report.sections[0].findings.begin() + 2);
  CHECK(exit_code_of(report, false) == 0);
  CHECK(exit_code_of(report, true) == 1);
}

}  // namespace
}  // namespace dtrun::cmd::report_test
