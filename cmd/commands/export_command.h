// `dtrun export`: a trained model as a directory that Hugging Face's transformers loads.
#pragma once

#include "cmd/options/command.h"

namespace dtrun::cmd {

extern const Command kExportCommand;

}  // namespace dtrun::cmd
