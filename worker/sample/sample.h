// Text from a trained model, for `dtrun sample`, which runs dtrun-worker for it.
#pragma once

#include <string>
#include <vector>

namespace dtrun::worker {

// RUN PROMPT MAX_NEW_TOKENS TEMPERATURE TOP_K TOP_P SEED, all checked by dtrun. Writes to standard output as
// it goes, and errors to standard error. Returns the exit code.
int sample_main(const std::vector<std::string>& arguments);

}  // namespace dtrun::worker
