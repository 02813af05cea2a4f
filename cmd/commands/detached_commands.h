#pragma once

#include "cmd/options/command.h"

namespace dtrun::cmd {

// `dtrun attach`, `dtrun stop` and `dtrun logs`: back to a job that was started with --detach.
extern const Command kAttachCommand, kStopCommand, kLogsCommand;

}  // namespace dtrun::cmd
