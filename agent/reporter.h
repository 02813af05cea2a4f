// Tells how a job ended: people on the console, programs by report.json and events.jsonl in its folders.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/job_spec.h"
#include "agent/job_registry.h"
#include "agent/output/console.h"
#include "agent/output/event_log.h"

namespace dtrun::agent {

class Reporter {
 public:
  // `disk` writes the files.
  Reporter(const JobSpec& spec, std::string host, Console& console, EventLog& log, Disk& disk)
      : spec_(spec), host_(std::move(host)), console_(console), log_(log), disk_(disk) {}

  // Removes the report of an earlier job of this name.
  void remove_earlier();
  void tell(const EndedJob& ended);
  // Writes only the files for programs. Returns the first report's file name, empty if there is none, or not
  // yet, as its file system does not answer.
  std::string tell_programs(const EndedJob& ended);

 private:
  std::vector<std::filesystem::path> files() const;

  const JobSpec& spec_;
  const std::string host_;
  Console& console_;
  EventLog& log_;
  Disk& disk_;
};

}  // namespace dtrun::agent
