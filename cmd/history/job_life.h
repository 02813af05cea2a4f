// events.jsonl of a run, read as far as it can be: when which node was at work, and what went wrong. Pure.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

namespace dtrun::cmd {

// All times are seconds since 1970 by the clock of the host that they are of.

// A node's part in a generation.
struct WorkSpan {
  double begin = 0;
  double ready = 0;  // its workers have loaded; 0: they do not say
  double end = 0;
  std::int64_t generation = 0;
  int world_size = 0;
  std::string reason;      // of the generation
  bool cut_short = false;  // no event tells the end: the agent was killed, or goes on
};

// A row of the picture: the spans do not overlap. A host has several rows if several agents ran there at
// once.
struct NodeLife {
  std::string host;
  std::vector<WorkSpan> spans;
};

// What people want to hear of: a worker that failed, a hang, nodes that come and go, the end.
struct LifeMark {
  double time = 0;
  std::string host;
  std::string kind;  // "failure", "follower", "hang", "straggler", "news", "signal", "end"
  std::string text;  // a sentence or several lines
};

struct JobLife {
  std::string run_id;         // the newest
  std::string output_dir;     // of the newest start; may be empty
  double begin = 0, end = 0;  // of all events; 0: there is none
  std::int64_t starts = 0;    // of agents
  std::int64_t generations = 0;
  int failures = 0;  // workers that failed by themselves
  std::vector<NodeLife> nodes;
  std::vector<LifeMark> marks;  // the newest kMostMarks, in the order of the file
  std::int64_t marks_left_out = 0;
  std::string report;  // text of the newest, as people saw it; may be empty
  int unreadable = 0;  // lines that are no JSON object with an event and a time
};

inline constexpr std::size_t kMostMarks = 500;

// `alive_at`: a time until which the job is known to have been at work (the newest line of its metrics),
// which ends spans that no event ends; 0: not known.
JobLife read_events(std::istream& text, double alive_at);

// Several stretches of a life: a run that was started again days later would be all gap in one picture.
struct LifeStretch {
  double begin = 0, end = 0;
};
// Ranges of time without a pause longer than `pause` seconds, oldest first.
std::vector<LifeStretch> stretches_of(const JobLife& life, double pause);

}  // namespace dtrun::cmd
