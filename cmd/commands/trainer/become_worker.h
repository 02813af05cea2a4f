// Subcommands that are the trainer's work: dtrun becomes dtrun-worker, so that it need not hold the trainer.
#pragma once

#include <string>
#include <vector>

namespace dtrun::cmd {

// Does not return if it works, else with the exit code. `words`: dtrun-worker's command and its arguments.
int become_worker(const std::vector<std::string>& words);

}  // namespace dtrun::cmd
