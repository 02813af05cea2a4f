#include "agent/reporter.h"

#include <system_error>

#include "agent/output/output_plan.h"
#include "agent/report_file.h"
#include "agent/system/wall_clock.h"
#include "agent/text/report.h"

namespace dtrun::agent {
void Reporter::remove_earlier() {
  std::error_code ignored;
  if (!spec_.log_dir.empty()) std::filesystem::remove(file(), ignored);
}

void Reporter::tell(const JobEnd& job) {
  const std::string file = tell_programs(job);
  const ReportStyle style{.terminal = console_.has_terminal(), .palette = console_.palette()};
  log_.write(
      "report",
      {{"exit_code", job.exit_code}, {"file", file}, {"text", failure_report(job, spec_.max_restarts)}});
  if (console_.is_terminal(Console::Stream::kErr)) console_.write(Console::Stream::kErr, "\n");
  console_.tell_job(failure_report(job, spec_.max_restarts, file, style));
}

std::string Reporter::tell_programs(const JobEnd& job) {
  if (spec_.log_dir.empty()) return "";
  const Status status = write_report(file(), report_json(job, {.run_id = spec_.run_id,
                                                               .host = host_,
                                                               .max_restarts = spec_.max_restarts,
                                                               .written_at = wall_seconds()}));
  if (!status.ok()) console_.error(status.message());
  return status.ok() ? file().string() : "";
}

std::filesystem::path Reporter::file() const { return run_dir(spec_) / "report.json"; }

}  // namespace dtrun::agent
