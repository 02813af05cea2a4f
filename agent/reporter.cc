#include "agent/reporter.h"

#include <system_error>

#include "agent/output/output_plan.h"
#include "agent/report_file.h"
#include "agent/text/report.h"
#include "proto/base/text_in.h"

namespace dtrun::agent {
void Reporter::remove_earlier() {
  std::error_code ignored;
  for (const std::filesystem::path& file : files()) std::filesystem::remove(file, ignored);
}

void Reporter::tell(const EndedJob& ended) {
  const JobEnd& job = ended.end;
  const std::string file = tell_programs(ended);
  const ReportStyle style{.terminal = console_.has_terminal(), .palette = console_.palette()};
  log_.write(
      "report",
      {{"exit_code", job.exit_code}, {"file", file}, {"text", failure_report(job, spec_.max_restarts)}});
  if (console_.is_terminal(Console::Stream::kErr)) console_.write(Console::Stream::kErr, "\n");
  console_.tell_job(failure_report(job, spec_.max_restarts, file, style));
}

std::string Reporter::tell_programs(const EndedJob& ended) {
  std::string first;
  for (const std::filesystem::path& file : files()) {
    std::error_code ignored;
    const std::filesystem::path folder = file.parent_path();
    const bool is_others = folder == folder_in_use(spec_) && !log_.begun();
    if (is_others || !std::filesystem::exists(folder, ignored)) continue;  // the job did not begin here
    const Status status = replace_text(file, report_json(ended, host_));
    if (!status.ok()) console_.error(status.message());
    if (status.ok() && first.empty()) first = file.string();
  }
  return first;
}

std::vector<std::filesystem::path> Reporter::files() const {
  std::vector<std::filesystem::path> files = history_folders(spec_);
  for (std::filesystem::path& file : files) file /= "report.json";
  return files;
}

}  // namespace dtrun::agent
