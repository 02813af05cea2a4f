#pragma once

#include "cmd/options/command.h"

namespace dtrun::cmd {

// `dtrun agent`: what a launcher on another host starts over ssh.
extern const Command kAgentCommand;

}  // namespace dtrun::cmd
