#include "agent/agent.h"

#include <sys/prctl.h>

#include "agent/driver.h"
#include "agent/process/guardian.h"
#include "agent/process/scratch.h"
#include "agent/system/signals.h"
#include "proto/base/ids.h"

namespace dtrun::agent {
int run(const JobSpec& spec) {
  Signals signals;
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const std::string token = random_id(16);
  Guardian guardian(token, new_scratch_path());
  guardian.start();
  return Driver(spec, token, guardian, signals).run();
}

}  // namespace dtrun::agent
