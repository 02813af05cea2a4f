// Limits on what guests, the holders of a scoped token, may use of a store, counted by the scoped token's
// name: connections (which are files), places in runs, waiting calls, and calls a second. Holders of the key
// have no limit. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "proto/core/millis.h"

namespace dtrun::rendezvous {

struct GuestLimits {
  static constexpr std::size_t kMembers = 256;  // nodes of a run
  // A waiting call takes some 14 KB, and each worker of a run may have one.
  static constexpr std::size_t kWaiters = 4096;
  static constexpr std::size_t kConnections = 256;  // a node has one
  // A call that has begun takes some 6 KB until its message arrives, which may be never.
  static constexpr std::size_t kUnarrived = 4096;
  static constexpr double kCalls = 4096, kCallsPerSecond = 1000;
};

class GuestConnections {
 public:
  using Id = std::uint64_t;

  // `all`: of all guests together.
  explicit GuestConnections(std::size_t all) : all_(all) {}

  // Returns the connection to close for the new one, if any: the new one itself if its guest has its full
  // share, else the newest of the guest that has most.
  std::optional<Id> came(Id id, const std::string& guest);
  void went(Id id);  // unknown ones are ignored

  bool contains(Id id) const { return guest_of_.contains(id); }
  std::vector<Id> of(const std::string& guest) const;
  std::size_t size() const { return guest_of_.size(); }

 private:
  const std::size_t all_;
  std::map<Id, std::string> guest_of_;
  std::map<std::string, std::set<Id>> of_;  // ids grow
};

class GuestCalls {
 public:
  enum Kind { kMember, kWaiter };

  // False if the guest has as many as it may. Each true one is given back once.
  bool take(const std::string& guest, Kind kind);
  void give_back(const std::string& guest, Kind kind);

  // A call has begun. False if there were too many lately, or too many whose messages have not arrived: all
  // that the guest has here is to be ended, and is not counted any more.
  bool begins(const std::string& guest, Millis now);
  // Its message has arrived.
  void arrived(const std::string& guest);

  // The number of guests with an entry.
  std::size_t size() const { return guests_.size(); }

 private:
  struct Guest {
    std::size_t members = 0, waiters = 0;
    std::size_t unarrived = 0;  // some of these may have ended, which nobody is told of
    double calls = 0;           // not forgiven yet, at `counted_at`
    Millis counted_at = 0;
  };
  void forget_idle(Millis now);

  std::map<std::string, Guest> guests_;
  Millis swept_at_ = 0;
};

}  // namespace dtrun::rendezvous
