// A registry of this user's jobs on this host and their coordinators' endpoints: one small file per agent, so
// that `dtrun status` finds a job whose port was chosen freely. A living agent holds a lock on its file; a
// file without a lock does not count. An agent that knows how its run ended leaves a record of that, for
// queries after the coordinator is gone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "agent/core/vocabulary.h"
#include "agent/system/disk.h"
#include "proto/base/descriptor.h"

namespace dtrun::agent {

struct RegisteredJob {
  std::string run_id;
  std::string host = {};  // of the coordinator, as the agent reaches it; or "unix:PATH", without a port
  int port = 0;
  int pid = 0;            // of the agent
  std::string node = {};  // that it is on: several may share the folder
  bool has_key = false;   // the coordinator wants one
  // The coordinator's key, if it was made for this job alone: only the job's agents and this entry, which
  // only this user can read, have it. Not kept beyond the job.
  std::string key = {};
  bool is_ready = false;  // the agent's workers take part in a generation
};

// How a run ended, as its agent knew it.
struct EndedJob {
  RegisteredJob job;
  double ended_at = 0;          // seconds since 1970
  JobEnd end = {};              // without its workers
  std::int64_t generation = 0;  // the newest, 0: none began
  int world_size = 0;
  int min_nodes = 0, max_nodes = 0;
  int max_restarts = 0;
};

// An ended run is remembered for this long, and at most the newest kMaxEndedJobs of them.
inline constexpr double kKeepEndedSeconds = 600;
inline constexpr std::size_t kMaxEndedJobs = 256;

// $XDG_RUNTIME_DIR/dtrun, or /tmp/dtrun-UID without that variable.
std::filesystem::path registry_folder();

// The agent's own entry, which exists as long as the object.
class JobEntry {
 public:
  // Does without an entry if the folder cannot be used: that is no reason not to run a job.
  JobEntry(const std::filesystem::path& folder, const RegisteredJob& job);
  ~JobEntry();
  JobEntry(const JobEntry&) = delete;
  JobEntry& operator=(const JobEntry&) = delete;

  // A notice for people; empty: none.
  std::string notice() const;

  // Tells whether the agent's workers take part in a generation; not yet at first.
  void set_ready(bool is_ready);
  // Leaves word of the run's end; `ended.job` is filled in. At most once.
  void finish(EndedJob ended);

 private:
  void write();

  RegisteredJob job_;
  std::filesystem::path foreign_folder_;  // that is there, and not ours alone; else empty
  std::filesystem::path file_;
  Descriptor lock_;
};

// Enters the job in registry_folder() by `disk`, which alone may use the entry from then on. Null: the folder
// does not answer. `notice`: for people; empty: none.
struct Entered {
  std::shared_ptr<JobEntry> entry;
  std::string notice;
};
Entered enter_in_registry(Disk& disk, RegisteredJob job);

// The jobs whose agents live, by run id; removes what dead agents left.
std::vector<RegisteredJob> registered_jobs(const std::filesystem::path& folder);

// The runs that ended within kKeepEndedSeconds before `now` (seconds since 1970), newest first, of each id
// the newest. Removes older files.
std::vector<EndedJob> ended_jobs(const std::filesystem::path& folder, double now);

}  // namespace dtrun::agent
