// What the ranks of a generation did in one window of time, and the shape of a judgement on it.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/core/messages.h"

namespace dtrun::rendezvous {

// At least this share of a step is lost, or nothing is said.
inline constexpr double kStragglerLoss = 0.10;

// One rank's part: seconds per step.
struct WindowPart {
  int rank = 0;
  double math = 0, data = 0, wait_peers = 0, other = 0;
  double microbatches = 0;            // per step; 0: not told
  std::vector<double> wait_for = {};  // by rank, as in StepTimes; empty: not told, nor is the host then
  std::string host = {};
  // Per second of the window, by the kernel; all 0 where its agent has not looked.
  double cpu = 0, cpu_wait = 0, throttled = 0, stopped = 0, major_faults = 0, read_bytes = 0;
  std::optional<Neighbour> neighbour = {};  // at its end

  double step() const { return math + data + wait_peers + other; }
};
using Window = std::vector<WindowPart>;  // of all ranks 0..size-1, in order

struct Straggler {
  std::string who;        // "rank 3", "the network of node1"
  Verdict verdict;        // its text says why, alone; `serious` is open
  std::string does = {};  // to the run, "is kept back"; empty: slows it by the loss
};

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace dtrun::rendezvous
