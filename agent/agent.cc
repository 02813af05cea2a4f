#include "agent/agent.h"

#include <sys/prctl.h>

#include "agent/driver.h"
#include "agent/process/scratch.h"
#include "agent/process/watchdog.h"
#include "agent/system/signals.h"
#include "proto/base/ids.h"

namespace dtrun::agent {
int run(const JobSpec& spec) {
  Signals signals;
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const std::string tag = random_id(16);
  Watchdog watchdog(tag, new_scratch_path());
  watchdog.start();
  return Driver(spec, tag, watchdog, signals).run();
}

}  // namespace dtrun::agent
