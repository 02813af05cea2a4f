// Finds out which of several hosts is the coordinator: asks all of them, and each answers as soon as it knows
// of another one. Runs a thread for each host.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/core/status.h"
#include "rendezvous/core/election/election.h"
#include "rendezvous/identity/job_key.h"

namespace dtrun::rendezvous {

struct LeaderAt {
  election::Term term = 0;  // 0: there is none
  int host = 0;
  int port = 0;
};

class LeaderWatch {
 public:
  // Each host listens on one of `ports`; with several ports only the host's own answer tells on which, so a
  // leader that does not answer is none. `list`: these hosts' name for their list; empty: any host that
  // answers is one of them. `changed` is called on threads of its own, one call at a time, when newest() may
  // be another one.
  static std::unique_ptr<LeaderWatch> start(const std::vector<std::string>& hosts,
                                            const std::vector<int>& ports, const std::optional<JobKey>& key,
                                            const std::string& list, std::function<void()> changed);
  virtual ~LeaderWatch() = default;  // no call of `changed` after it returns

  // The one with the highest term that a host in reach knows of.
  virtual LeaderAt newest() const = 0;
  // Waits at most `limit`, or until interrupt(), for a leader with a term above that; returns the newest one.
  virtual LeaderAt wait_for(election::Term above, std::chrono::milliseconds limit) = 0;
  virtual void interrupt() = 0;  // for good
  // The reason why there is no leader: EX_NOPERM if a host has another key.
  virtual Status trouble() const = 0;
  // Nobody listens on so many of the hosts, all of which answer, that no majority is left.
  virtual bool none_can_lead() const = 0;
};

}  // namespace dtrun::rendezvous
