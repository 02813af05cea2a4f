// The facts of one node, part by part. Each function asks the system and may take as long as it says; none
// fails: what cannot be found out stays unknown.
#pragma once

#include <string>
#include <vector>

#include "agent/core/job_spec.h"
#include "cmd/doctor/core/facts.h"
#include "rendezvous/identity/credential.h"

namespace dtrun::doctor {

// Limits, clock and stacks. Milliseconds.
LimitFacts read_limits(const JobSpec& spec);

// /dev/shm, and the memory that is left for the job. Milliseconds.
MemoryFacts read_memory(const JobSpec& spec, bool knows_job);

// The CPUs' use by others, sampled from its start to its end.
class CpuSample {
 public:
  CpuSample();
  CpuFacts read(const JobSpec& spec) const;

  struct Times {
    double all = 0, idle = 0, steal = 0, own = 0;  // CPU seconds
    std::vector<std::pair<int, double>> processes;
  };

 private:
  const Times begin_;
  const double began_at_;
};

// The host's names and the way to the endpoint; up to 1 s each for the name service and the endpoint.
NameFacts read_names();
RouteFacts read_route(const std::string& host, int port);
void read_listener(NameFacts* name, const std::string& host, int port, const JobSpec& spec);
// Whether `host` means one of `own` here, and whether `address` has a name that is not `host`.
PathFacts look_up_peer(const std::string& host, const std::string& address,
                       const std::vector<std::string>& own);

// Writes up to 64 MB into output_dir for half a second, and reads the data for a third of one.
DiskFacts read_disks(const JobSpec& spec);

// GPUs, network cards and disks; up to 1.5 s for the GPUs' driver.
DeviceFacts read_devices(const JobSpec& spec);

}  // namespace dtrun::doctor
