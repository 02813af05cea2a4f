// `dtrun prepare`: text to token shards.
#pragma once

#include "cmd/options/command.h"

namespace dtrun::cmd {

extern const Command kPrepareCommand;

}  // namespace dtrun::cmd
