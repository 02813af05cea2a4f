// Decides which logins are under way at a time. sshd, or a jump host that all logins share, refuses logins at
// random while many are unfinished (MaxStartups). So a window holds them: refusals make it smaller, each
// success larger. Pure: time is an argument, and the random-looking delays follow from host and attempt.
//
// The driver calls dial() at first, after every event and at deadline(), and starts a login for each host
// that it returns. Each of these ends in exactly one of logged_in(), refused() and failed().
#pragma once

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "proto/core/millis.h"

namespace dtrun::cmd {

inline constexpr int kFirstLoginWindow = 64;
inline constexpr int kLeastLoginWindow = 4;
inline constexpr int kMostLoginWindow = 256;  // processes of ssh
inline constexpr Millis kFirstLoginBackOff = 300;
inline constexpr Millis kMostLoginBackOff = 5000;
// A host that is still refused this long after its first attempt is given up.
inline constexpr Millis kLoginPatience = 90'000;

// After attempt number `attempt` of `host`, which count from 1: doubles from attempt to attempt between the
// two above, less up to half of it, so that hosts that were refused together do not come back together.
Millis login_back_off(int host, int attempt);

class FanOut {
 public:
  explicit FanOut(int hosts, int window = kFirstLoginWindow);

  // Hosts by index to dial now, as many as the window has room for. They are under way from then on.
  std::vector<int> dial(Millis now);

  void logged_in(int host);
  // SshFailure::kRefusedLogin. False: the host is given up, its patience is over.
  [[nodiscard]] bool refused(int host, Millis now);
  void failed(int host);  // any other failure: not tried again

  // When dial() will return something although nothing happened since its last call; nullopt: never.
  std::optional<Millis> deadline() const;
  bool over() const;  // every host is logged in, failed or given up

  int under_way() const { return under_way_; }
  int window() const { return window_; }

 private:
  struct Login {
    int attempts = 0;
    Millis first_at = 0;
    int round = 0;  // in which the last attempt was dialled
  };
  void dial_one(int host, Millis now);

  std::vector<Login> logins_;
  int next_new_ = 0;                              // this host and those behind it were never dialled
  std::set<std::pair<Millis, int>> backing_off_;  // (due, host)
  int window_;
  int under_way_ = 0;
  // A new one with each smaller window: of all logins that a window let begin together, many may be refused
  // for one reason, and only the first of them makes it smaller.
  int round_ = 0;
};

}  // namespace dtrun::cmd
