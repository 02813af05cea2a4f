// LOG_DIR/RUN_ID/report.json: how a job ended, for programs (docs/report.md describes the fields).
#pragma once

#include <filesystem>
#include <string>

#include "agent/core/vocabulary.h"
#include "proto/core/status.h"

namespace dtrun::agent {

// The report's facts beside the coordinator's message on the end of the job.
struct ReportContext {
  std::string run_id;
  std::string host;
  int max_restarts = 0;
  double written_at = 0;  // seconds since 1970
};

std::string report_json(const JobEnd& end, const ReportContext& context);

// Replaces `file` in one step: agents that share the directory all write the same report.
Status write_report(const std::filesystem::path& file, const std::string& text);

}  // namespace dtrun::agent
