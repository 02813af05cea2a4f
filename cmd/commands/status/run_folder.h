// The files that a run left: in its output directory, in LOG_DIR/RUN_ID, or in both.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "agent/job_registry.h"
#include "cmd/history/run_history.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

struct RunFolder {
  std::filesystem::path path;        // has events.jsonl, report.json or metrics.jsonl
  std::vector<std::string> remarks;  // on the choice; sentences
};

// The folder of the run that `given` names: such a folder, a file in it, or a LOG_DIR, of whose runs the
// newest is taken. A failure has EX_NOINPUT and says where to look.
Result<RunFolder> find_run_folder(const std::string& given);

// True if find_run_folder() takes it without looking further: it is no run's id.
bool is_run_folder(const std::filesystem::path& path);

// The newest run that began there; empty: not known.
std::string run_id_in(const RunFolder& folder);

// How the run ended; nothing if no report tells that.
std::optional<agent::EndedJob> end_in(const RunFolder& folder);

// What cannot be read is a remark of the record. `name`: of the run, for people.
RunRecord read_run(const RunFolder& folder, const std::string& name);

}  // namespace dtrun::cmd
