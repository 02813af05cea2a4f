// From the job's output options to one worker's stream: its targets, files and prefix.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/core/job_spec.h"
#include "agent/output/console.h"
#include "agent/output/log_writer.h"

namespace dtrun::agent {

// LOG_DIR/RUN_ID, the folder of the job's own files; empty without a log directory.
std::filesystem::path run_dir(const JobSpec& spec);

// The folders that keep what became of the job, events.jsonl and report.json: run_dir(), and the output
// directory of the built-in trainer, where a run is looked for long after it has ended.
std::vector<std::filesystem::path> history_folders(const JobSpec& spec);

// The one of them that a process writes already: it is this job's once a worker trains. Empty: none.
std::filesystem::path folder_in_use(const JobSpec& spec);

class OutputPlanner {
 public:
  OutputPlanner(const JobSpec& spec, std::string host, Disk& disk)
      : spec_(spec), host_(std::move(host)), disk_(disk) {}

  // `log_dir` is the worker's own directory; empty: no files.
  StreamPlan plan(Console& console, Console::Stream stream, int rank, int local_rank,
                  const std::filesystem::path& log_dir);
  LinePrefix prefix(int rank, int local_rank) const;

 private:
  std::shared_ptr<QueuedLog> filtered_file(Console& console, const std::filesystem::path& path);

  const JobSpec& spec_;
  const std::string host_;
  Disk& disk_;
  // One for all workers of a generation that still write to it.
  std::map<std::filesystem::path, std::weak_ptr<QueuedLog>> filtered_;
};

}  // namespace dtrun::agent
