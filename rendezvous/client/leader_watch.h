// Which of several hosts is the coordinator: asks all of them, and each says so as soon as it knows of
// another one. Runs a thread for each host.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/core/status.h"
#include "rendezvous/core/succession.h"
#include "rendezvous/identity/credential.h"

namespace dtrun::rendezvous {

struct LeaderAt {
  succession::Term term = 0;  // 0: there is none
  int host = 0;
  int port = 0;
};

class LeaderWatch {
 public:
  // Each host listens on one of `ports`; of several only its own answer tells on which, so a leader that does
  // not answer is none. `list`: of these hosts, as they have it; empty: whatever answers is one of them.
  // `changed` is called on threads of its own, one call at a time, when newest() may be another one.
  static std::unique_ptr<LeaderWatch> start(const std::vector<std::string>& hosts,
                                            const std::vector<int>& ports,
                                            const std::optional<Credential>& key, const std::string& list,
                                            std::function<void()> changed);
  virtual ~LeaderWatch() = default;  // no call of `changed` after it returns

  // The one with the highest term that a host in reach knows of.
  virtual LeaderAt newest() const = 0;
  // Waits for one with a term above that, at most so long or until interrupt(); the newest then.
  virtual LeaderAt wait_for(succession::Term above, std::chrono::milliseconds limit) = 0;
  virtual void interrupt() = 0;  // for good
  // What stands in the way where there is none: EX_NOPERM if a host has another key.
  virtual Status trouble() const = 0;
};

}  // namespace dtrun::rendezvous
