// report.json in the folders of a job: how it ended, for programs (docs/report.md describes the fields).
#pragma once

#include <optional>
#include <string>

#include "agent/job_registry.h"

namespace dtrun::agent {

// `host` writes it. Of `ended.job` only the run id is told.
std::string report_json(const EndedJob& ended, const std::string& host);

// The run of such a report, without its workers and its hang. Nothing if `text` is none.
std::optional<EndedJob> ended_job_of(const std::string& text);

}  // namespace dtrun::agent
