#pragma once

#include "cmd/options/command.h"

namespace dtrun::cmd {

extern const Command kKeyCommand;

}  // namespace dtrun::cmd
