// Decides of which addresses people hear that their handshakes fail. A node with another key tries twice at
// once: to come in, and to find out why it may not. A single failure may be an interrupted connection. Pure.
#pragma once

#include <map>
#include <string>

#include "proto/core/millis.h"

namespace dtrun::rendezvous {

class Refused {
 public:
  static constexpr Millis kAtOnce = 5000;       // between its two failures
  static constexpr Millis kSameAgain = 60'000;  // until the same address is reported again
  static constexpr Millis kAnyAgain = 1000;     // until another one is: a flood comes from everywhere
  static constexpr std::size_t kMost = 1024;    // that are remembered

  // Notes a failed handshake; true if people should hear of the address now.
  bool failed(const std::string& address, Millis now);
  void came_in(const std::string& address) { known_.erase(address); }

  std::size_t size() const { return known_.size(); }

 private:
  struct Known {
    Millis failed_at = 0;
    Millis silent_until = 0;
  };
  std::map<std::string, Known> known_;
  Millis silent_until_ = 0;
};

}  // namespace dtrun::rendezvous
