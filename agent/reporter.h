// Tells how a job ended: people on the console, programs in LOG_DIR/RUN_ID/report.json and events.jsonl.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "agent/core/job_spec.h"
#include "agent/core/vocabulary.h"
#include "agent/output/console.h"
#include "agent/output/event_log.h"

namespace dtrun::agent {

class Reporter {
 public:
  Reporter(const JobSpec& spec, std::string host, Console& console, EventLog& log)
      : spec_(spec), host_(std::move(host)), console_(console), log_(log) {}

  // Removes the report of an earlier job of this name.
  void remove_earlier();
  void tell(const JobEnd& job);
  // Writes only the files for programs. Returns the report's file name, empty if there is none.
  std::string tell_programs(const JobEnd& job);

 private:
  std::filesystem::path file() const;

  const JobSpec& spec_;
  const std::string host_;
  Console& console_;
  EventLog& log_;
};

}  // namespace dtrun::agent
