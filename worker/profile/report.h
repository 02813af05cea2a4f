// The profile of a device's lanes, as numbers and as text. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "worker/device/op_timer.h"

namespace dtrun::worker {

// One kind of operation on one stream, in a step of one lane.
struct OpRow {
  OpKind kind;
  std::string stream;
  int nodes = 0;  // of the program with this kind of operation
  double launches = 0;
  double seconds = 0;  // the sum of their times
  // As `seconds`, but time in which n operations ran at once counts 1/n for each: rows add up to busy time.
  double share_seconds = 0;
  double floor = 0;  // seconds that the operations would take at the ceilings
  OpCost cost;
};

struct Profile {
  std::string job, machine, device;  // the first two: lines for people
  int lanes = 1;
  int steps = 0;  // with times
  int untimed_steps = 0;
  double samples = 0;        // of a step
  Ceilings ceilings;         // for one lane
  double seconds = 0;        // wall time of a step as it is normally run
  double timed_seconds = 0;  // wall time of a step whose operations were timed
  // Parts of these seconds on the host: reading samples; waiting for mean, norm and optimizer.
  double data = 0, update = 0;
  std::vector<OpRow> rows;

  double busy() const;  // seconds of a timed step in which any stream of a lane ran something
  double gaps() const { return timed_seconds - busy(); }
  double floor() const;
};

// The rows of the times of `steps` steps, the largest share first. With several lanes each is a stream, which
// runs one operation at a time, and a row is their average.
std::vector<OpRow> rows_of(const OpTimes& times, const Ceilings& ceilings, int steps, int lanes = 1);
// Work of a step that no operation of a lane is.
OpRow row_beside(const std::string& what, double seconds);

std::string table(const Profile& profile);
std::string json(const Profile& profile);

}  // namespace dtrun::worker
