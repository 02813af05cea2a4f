// Tells people of a generation that gets nowhere: which ranks wait for which, and the one that all of them
// wait for; else where the silent ones stand. Pure. What is told here ends nobody: run/hang.h judges those
// that do end.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "proto/core/millis.h"
#include "rendezvous/core/messages.h"

namespace dtrun::rendezvous {

// What is known of one rank of the generation.
struct RankReport {
  std::string host;
  bool out_of_touch = false;        // its node
  std::optional<Quiet> quiet = {};  // none: it gets on
};
using RankReports = std::map<int, RankReport>;  // all ranks of the generation

// The ranks that others wait for and that wait for nobody, by the others' words; each with the longest wait
// for it. Ranks that wait for all others wait for those that do not wait.
std::map<int, Quiet> waited_for(const RankReports& reports);

// "rank 3 on node1 has not sent bucket 2 of step 118 for 31 s; 3 ranks wait for it; it stands at: read of
// /data/x". Empty if no rank is waited for.
std::string waits_text(const RankReports& reports);

// The same, or in its absence what is known of ranks that are silent or idle; empty if people need not be
// told.
std::string no_progress_text(const RankReports& reports);

// REQUIRES: no_progress_text() is not empty. The host that it is about; empty: no single one.
std::string host_without_progress(const RankReports& reports);

// When people are told: once all nodes have had time to report, and once when the ranks get on again.
class NoProgress {
 public:
  // Two looks of an agent, and its heartbeat: of a node that fell silent at the same time.
  static constexpr Millis kPatience = 10000;
  // Between two looks at all ranks.
  static constexpr Millis kGap = 1000;

  // True if it is time to look(). `overdue`: one of the ranks that have just reported is.
  bool due(bool overdue, Millis now) const {
    return (overdue || seen_at_ || told_at_) && (!looked_at_ || now - *looked_at_ >= kGap);
  }
  // News, if there are any now.
  std::optional<News> look(const RankReports& reports, Millis now);

 private:
  std::optional<Millis> looked_at_;
  std::optional<Millis> seen_at_;  // since when a rank is overdue
  std::optional<Millis> told_at_;
};

}  // namespace dtrun::rendezvous
