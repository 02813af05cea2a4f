#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "cmd/commands/answer.h"
#include "cmd/commands/commands.h"
#include "cmd/commands/status/run_folder.h"
#include "cmd/history/page.h"
#include "cmd/options/values.h"
#include "proto/base/text_in.h"
#include "rendezvous/text/status_text.h"

namespace dtrun::cmd {
namespace {

constexpr OptionEntry kOptionsOfReport[] = {
    {.name = "output",
     .short_name = "o",
     .placeholder = "FILE",
     .help = "Where the page goes; - is standard output [report.html in RUN_DIR; of a comparison "
             "comparison.html here]",
     .is_path = true},
    {.name = "compare", .help = "Two runs: their curves in one picture, and a table of what differs"},
    {.name = "json", .help = "JSON on standard output, and no page"},
    kColorOption,
    kHelpOption};

constexpr std::size_t kPointsInJson = 2000;  // of a curve

struct ReportedRun {
  RunFolder folder;
  RunHistory run;
};

Result<ReportedRun> find_run(const std::string& given) {
  ASSIGN_OR_RETURN(RunFolder folder, find_run_folder(given));
  RunHistory run = history_of(read_run(folder, given));
  return ReportedRun{std::move(folder), std::move(run)};
}

int write_page(const std::string& page, const std::filesystem::path& file) {
  if (file == "-") return answer(page);
  // What a reader may read of another user's run, the page's other readers need not.
  struct stat folder {};
  if (stat(file.parent_path().c_str(), &folder) == 0 && folder.st_uid != geteuid()) umask(077);
  const Status status = replace_text(file, page);
  if (!status.ok()) return fail(Status(status.exit_code(), status.message() + "; -o FILE writes elsewhere"));
  return answer("wrote " + file.string() + "\n");
}

int compare(const RunHistory& a, const RunHistory& b, bool json, const std::string& output) {
  const Comparison comparison = comparison_of(a, b);
  if (json) return answer(rendezvous::json_document(to_json(comparison)));
  return write_page(comparison_page(a, b, comparison), output.empty() ? "comparison.html" : output);
}

int run_report(const Invocation& invocation) {
  const Values<kOptionsOfReport> options{invocation.values};
  const bool two = !invocation.second.empty();
  if (options.flag("compare") != two)
    return fail(usage(two ? "two runs are compared: dtrun report --compare A B"
                          : "--compare needs two runs: dtrun report --compare A B"));
  const auto given = options.given("output");
  const std::string output = given ? given->value : "";
  const Result<ReportedRun> first = find_run(invocation.argument);
  if (!first.ok()) return fail(first.status());
  if (two) {
    const Result<ReportedRun> second = find_run(invocation.second);
    if (!second.ok()) return fail(second.status());
    return compare(first.value().run, second.value().run, options.flag("json"), output);
  }
  const RunHistory& run = first.value().run;
  if (options.flag("json")) return answer(rendezvous::json_document(to_json(run, kPointsInJson)));
  return write_page(report_page(run), output.empty() ? first.value().folder.path / "report.html"
                                                     : std::filesystem::path(output));
}

}  // namespace

constinit const Command kReportCommand{
    .name = "report",
    .summary = "Make a page of a run from the files that it left",
    .description =
        "RUN_DIR is the output_dir of a job, LOG_DIR/RUN_ID of any program, or a LOG_DIR, of whose runs the "
        "newest is "
        "taken. The page is one HTML file that needs nothing else, neither a network nor a server: curves of "
        "metrics.jsonl, goodput, when which node was at work, what failed, and the config. The run may have "
        "ended long "
        "ago, or still go on.",
    .argument = "RUN_DIR",
    .second = "[OTHER]",
    .options = kOptionsOfReport,
    .rare = true,
    .run = run_report};

}  // namespace dtrun::cmd
