// `dtrun profile`: runs some steps of a job on one worker, and reports their time.
#pragma once

#include <string>
#include <vector>

namespace dtrun::worker {

// arguments: the config's path, lanes, steps (0: for about two seconds), "table" or "json", a file for the
// trace or "", the number of a GPU or "" for the CPU, and overrides of the config's entries
// ("train.bf16=true"). Writes to standard output; does not touch the job's output_dir. Returns the exit code.
int profile_main(const std::vector<std::string>& arguments);

}  // namespace dtrun::worker
