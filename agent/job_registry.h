// Which jobs of this user run on this host, and where their coordinators are: one small file per agent, so
// that `dtrun status` finds a job whose port was chosen freely. A living agent holds a lock on its file; a
// file without a lock does not count.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "agent/system/descriptor.h"

namespace dtrun::agent {

struct RegisteredJob {
  std::string run_id;
  std::string host;  // of the coordinator, as the agent reaches it
  int port = 0;
  int pid = 0;  // of the agent
};

// $XDG_RUNTIME_DIR/dtrun, or /tmp/dtrun-UID where there is none.
std::filesystem::path registry_folder();

// The agent's own entry, for as long as the object lives.
class JobEntry {
 public:
  // Does without an entry if the folder cannot be used: that is no reason not to run a job.
  JobEntry(const std::filesystem::path& folder, const RegisteredJob& job);
  ~JobEntry();
  JobEntry(const JobEntry&) = delete;
  JobEntry& operator=(const JobEntry&) = delete;

 private:
  std::filesystem::path file_;
  Descriptor lock_;
};

// The jobs whose agents live, by run id; removes what dead agents left.
std::vector<RegisteredJob> registered_jobs(const std::filesystem::path& folder);

}  // namespace dtrun::agent
