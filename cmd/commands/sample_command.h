// `dtrun sample`: text from a trained model.
#pragma once

#include "cmd/options/command.h"

namespace dtrun::cmd {

extern const Command kSampleCommand;

}  // namespace dtrun::cmd
