// `dtrun help`: the manual's pages.
#pragma once

#include "cmd/options/command.h"

namespace dtrun::cmd {

extern const Command kHelpCommand;

}  // namespace dtrun::cmd
