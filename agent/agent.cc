#include "agent/agent.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "agent/driver.h"
#include "agent/process/guardian.h"
#include "agent/system/signals.h"
#include "proto/base/ids.h"
#include "proto/base/temporary.h"

namespace dtrun::agent {
namespace {

// Started with one of them closed, the next file or socket would become our standard output.
void open_standard_descriptors() {
  int fd;
  while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO) {
  }
  if (fd >= 0) close(fd);
}

}  // namespace

int run(const JobSpec& spec) {
  open_standard_descriptors();
  Signals signals;
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const std::string token = random_id(16);
  Guardian guardian(token, temporary_folder() / ("dtrun-" + random_id()));
  guardian.start();
  return Driver(spec, token, guardian, signals).run();
}

}  // namespace dtrun::agent
