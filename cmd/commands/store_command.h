// `dtrun store`: coordinator and store on a host of their own, so that any agent may be lost.
#pragma once

#include "cmd/options/command.h"

namespace dtrun::cmd {

extern const Command kStoreCommand;

}  // namespace dtrun::cmd
