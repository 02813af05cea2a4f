// `dtrun profile`: some steps of a job on one worker, and where their time went.
#pragma once

#include <string>
#include <vector>

namespace dtrun::worker {

// arguments: the config's path, lanes, steps (0: for about two seconds), "table" or "json", a file for the
// trace or "", the number of a GPU or "" for the CPU, and what overrides entries of the config
// ("train.bf16=true"). Writes to standard output; nothing of the job's output_dir is touched. Returns the
// exit code.
int profile_main(const std::vector<std::string>& arguments);

}  // namespace dtrun::worker
