// Judges a job that hangs: where its workers stood, which of them stood at the same place, and whether one
// stands out. In a hang all workers are silent, so only the places where they stand can show which one is at
// fault. Pure.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "rendezvous/core/messages.h"

namespace dtrun::rendezvous {

// The place where one worker stood. The functions below take Standings by rank.
struct StackLocation {
  std::string where;
  Activity activity = Activity::kUnseen;
  std::string host;
};

// Limits of Hang::places, and of the ranges in each list of ranks: every node receives all of them.
inline constexpr std::size_t kMaxPlaces = 16;
inline constexpr std::size_t kMaxRanges = 64;

// `what`: how the hang was noticed. At fault is, the first that applies:
//   a worker that stopped giving heartbeats, which is known;
//   those that wait for no peer (they sleep, read a file, compute), where others may wait for them;
//   those that are elsewhere than the greater part, which is at least twice as many.
Hang judge_hang(const std::map<int, StackLocation>& locations, const std::string& what);

// "ranks 0, 2: all_reduce at train.py:88 · rank 1: sleep at loader.py:41", the first `most` places.
std::string places_text(const Hang& hang, std::size_t most);

// "ranks 0-2 hang: " with the places and the verdict.
std::string describe(const Hang& hang);

}  // namespace dtrun::rendezvous
