// The life of a job as a picture (SVG): a row for each node, a bar for each generation. Pure.
#pragma once

#include <string>

#include "cmd/history/job_life.h"

namespace dtrun::cmd {

// Each stretch of the life is a picture of its own, the newest first; empty if no node was at work.
std::string life_pictures(const JobLife& life);

}  // namespace dtrun::cmd
