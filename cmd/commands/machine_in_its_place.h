// This machine for planning a job that is started here by hand or by a cluster.
#pragma once

#include "cmd/machine/machine.h"

namespace dtrun::cmd {

// this_machine(), with its addresses and names, and what the process sees of a cluster that may have started
// it.
Machine machine_in_its_place();

}  // namespace dtrun::cmd
