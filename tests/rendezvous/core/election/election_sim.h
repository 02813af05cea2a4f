// Hosts that may lead, and members that obey, on a virtual clock and a network that cuts links one way or
// both, delays and loses what is said. Hosts crash, are started again with nothing in memory, stand still,
// and their clocks run apart. Everything follows from the seed. The invariants are checked in true time,
// which no host knows.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "rendezvous/core/election/election.h"

namespace dtrun::rendezvous::election {

struct SimSettings {
  std::uint64_t seed = 0;
  int hosts = 3;
  int members = 2;
  bool alone = false;  // one vote is enough
  Millis trouble = 5000;
  int faults = 8;  // within that time
  // Crashes spare the record: fewer than a majority are without it at a time.
  bool keeps_record = true;
  bool lies = false;  // one member says of any number that a leader has it, whenever it is told something
  std::function<void(Settings&)> tamper = {};
};

struct SimResult {
  std::string broken;  // what did not hold, or ""
  int leads = 0;       // times that a host began to lead
  int lapsed = 0;      // that one stopped because its lease ran out
  int written = 0;     // versions of the record that a majority had
  bool ended = false;  // the job's end was told
  int refused = 0;     // orders that members refused
  int lies = 0;
  int again = 0;     // times that a host succeeded itself, and kept what it had
  Term highest = 0;  // of a leader
  int crashes = 0, pauses = 0, cuts = 0;
  int alone_beside = 0;   // for failover=always: moments with two leaders
  Millis until_lead = 0;  // from the end of the trouble, until one led that stays
  std::int64_t events = 0;
};

SimResult simulate(const SimSettings& settings);

}  // namespace dtrun::rendezvous::election
