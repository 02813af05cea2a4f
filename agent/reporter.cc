#include "agent/reporter.h"

#include <memory>
#include <system_error>

#include "agent/output/output_plan.h"
#include "agent/report_file.h"
#include "agent/text/report.h"
#include "proto/base/text_in.h"

namespace dtrun::agent {
void Reporter::remove_earlier() {
  disk_.post([files = files()] {
    std::error_code ignored;
    for (const std::filesystem::path& file : files) std::filesystem::remove(file, ignored);
  });
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
  std::vector<std::filesystem::path> files = this->files();
  if (!log_.begun())
    std::erase_if(files, [&](const auto& file) { return file.parent_path() == folder_in_use(spec_); });
  struct Written {
    std::string first;
    std::vector<std::string> faults;
  };
  const auto written = std::make_shared<Written>();
  const bool done = disk_.run([written, files, text = report_json(ended, host_)] {
    for (const std::filesystem::path& file : files) {
      std::error_code ignored;
      if (!std::filesystem::exists(file.parent_path(), ignored)) continue;  // the job did not begin here
      const Status status = replace_text(file, text);
      if (!status.ok()) written->faults.push_back(status.message());
      if (status.ok() && written->first.empty()) written->first = file.string();
    }
  });
  if (!done) return "";
  for (const std::string& fault : written->faults) console_.error(fault);
  return written->first;
}

std::vector<std::filesystem::path> Reporter::files() const {
  std::vector<std::filesystem::path> files = history_folders(spec_);
  for (std::filesystem::path& file : files) file /= "report.json";
  return files;
}

}  // namespace dtrun::agent
