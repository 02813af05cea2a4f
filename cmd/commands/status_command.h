// `dtrun status`: who is where, doing what.
#pragma once

#include "cmd/options/command.h"

namespace dtrun::cmd {

extern const Command kStatusCommand;

}  // namespace dtrun::cmd
