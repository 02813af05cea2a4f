// `dtrun profile`: where the time of a job's steps goes.
#pragma once

#include "cmd/options/command.h"

namespace dtrun::cmd {

extern const Command kProfileCommand;

}  // namespace dtrun::cmd
