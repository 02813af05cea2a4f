#pragma once

#include "cmd/options/command.h"

namespace dtrun::cmd {

// `dtrun agent`: started over ssh by a launcher on another host.
extern const Command kAgentCommand;

}  // namespace dtrun::cmd
