// `dtrun store`: coordinator and store on a host of their own, so that no agent is special.
#pragma once

#include "cmd/options/command.h"

namespace dtrun::cmd {

extern const Command kStoreCommand;

}  // namespace dtrun::cmd
