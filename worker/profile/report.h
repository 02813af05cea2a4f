// The profile of lanes that compute on their own threads, as numbers and as text. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "worker/device/node_clock.h"
#include "worker/model/cost.h"
#include "worker/profile/ceilings.h"

namespace dtrun::worker {

// One kind of work, in a step of one lane.
struct ProfileRow {
  std::string what;                  // "Linear 256 -> 768"
  int nodes = 0;                     // of the program with this kind of work
  double forward = 0, backward = 0;  // seconds
  Cost cost;
  double seconds() const { return forward + backward; }
};

struct Profile {
  std::string job, machine;  // lines for people
  int lanes = 1, steps = 0;
  double samples = 0;  // of a step
  Ceilings ceilings;   // for one lane
  double seconds = 0;  // wall time of a step
  std::vector<ProfileRow> rows;
  // Parts of a step's seconds, on lane 0: reading samples; mean, norm and optimizer.
  double data = 0, update = 0;
  // The rest: adding microbatches up, waiting for other lanes.
  double other() const;
};

// Nodes that do the same work are one row, the longest first. `lanes`: the times that each lane recorded in
// `steps` steps of `samples` samples.
std::vector<ProfileRow> rows_of(const Program& program, std::span<const std::vector<NodeTime>> lanes,
                                double samples, int steps);

// The time of the work at the ceiling, divided by the time that it took. More than 1 where caches are faster
// than the measured ceiling.
double share_of_ceiling(const ProfileRow& row, const Ceilings& ceilings);

std::string table(const Profile& profile);
std::string json(const Profile& profile);

}  // namespace dtrun::worker
