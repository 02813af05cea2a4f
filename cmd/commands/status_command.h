// `dtrun status`: which nodes take part in a run, and what they do.
#pragma once

#include "cmd/options/command.h"

namespace dtrun::cmd {

extern const Command kStatusCommand;

}  // namespace dtrun::cmd
