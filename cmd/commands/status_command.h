// `dtrun status`: the nodes of a run and their work.
#pragma once

#include "cmd/options/command.h"

namespace dtrun::cmd {

extern const Command kStatusCommand;

}  // namespace dtrun::cmd
