// `dtrun gpus`: the GPUs of this machine, and which of them a program started here would see.
#pragma once

#include "cmd/options/command.h"

namespace dtrun::cmd {

extern const Command kGpusCommand;

}  // namespace dtrun::cmd
