#include "rendezvous/core/observe/no_progress.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "proto/core/text.h"
#include "rendezvous/core/observe/hang.h"
#include "rendezvous/core/rank_set.h"

namespace dtrun::rendezvous {
namespace {

// Named in one sentence.
constexpr std::size_t kMostNamed = 2;

bool waits(const RankReport& report) { return report.quiet && report.quiet->why == Quiet::kWaits; }
bool is_overdue(const RankReport& report) { return report.quiet && report.quiet->overdue; }

std::vector<int> ranks_that(const RankReports& reports, const std::function<bool(const RankReport&)>& fit) {
  std::vector<int> ranks;
  for (const auto& [rank, report] : reports)
    if (fit(report)) ranks.push_back(rank);
  return ranks;
}

// "4 min" for long times, "31 s" for others.
std::string lasting(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds);
  return whole < 120 ? std::to_string(whole) + " s" : std::to_string(whole / 60) + " min";
}

std::string step_in_hand(const Quiet& wait) { return "step " + std::to_string(wait.step + 1); }

// The part of the sentence that tells what is not done.
std::string missing(const Quiet& wait) {
  using Kind = Operation::Kind;
  const std::string bucket = wait.bucket >= 0 ? "bucket " + std::to_string(wait.bucket) + " of " : "";
  switch (wait.operation) {
    case Kind::kReceive:
      return "has not sent " + bucket + step_in_hand(wait);
    case Kind::kSend:
      return bucket.empty() ? "has not begun " + step_in_hand(wait)
                            : "has not taken " + bucket + step_in_hand(wait);
    case Kind::kConnect:
      return "has not connected";
    case Kind::kStopVote:
      return "has not voted whether to stop after " + step_in_hand(wait);
    case Kind::kEvaluation:
      return "has not sent its part of the evaluation after step " + std::to_string(wait.step);
    case Kind::kDevices:
      return "has not joined the exchange of " + step_in_hand(wait);
    default:
      return "has not joined a " + std::string(name_of(wait.operation)) + " at step " +
             std::to_string(wait.step);
  }
}

std::string place_of(const RankReport& report) {
  if (report.out_of_touch) return "; its node is out of touch";
  const bool known = report.quiet && !report.quiet->where.empty();
  return known ? "; it stands at: " + report.quiet->where : "";
}

// "no worker of node1", "no worker"
std::string nobody(const RankReports& reports, const std::vector<int>& idle) {
  std::set<std::string> hosts;
  for (int rank : idle) hosts.insert(reports.at(rank).host);
  if (idle.size() == reports.size()) return "no worker";
  return "no worker of " + join(std::vector<std::string>(hosts.begin(), hosts.end()));
}

Hang hang_of(const RankReports& reports, const std::vector<int>& ranks) {
  std::map<int, StackLocation> locations;
  for (int rank : ranks) {
    const RankReport& report = reports.at(rank);
    if (!report.quiet->where.empty())
      locations[rank] = {
          .where = report.quiet->where, .activity = report.quiet->activity, .host = report.host};
  }
  return judge_hang(locations, "");
}

std::string stands_text(const RankReports& reports, const std::vector<int>& ranks) {
  static constexpr std::size_t kPlaces = 3;
  const Hang hang = hang_of(reports, ranks);
  if (hang.places.empty()) return "";
  return ": " + places_text(hang, kPlaces) + (hang.verdict.empty() ? "" : "; " + hang.verdict);
}

double longest(const RankReports& reports, const std::vector<int>& ranks) {
  double seconds = 0;
  for (int rank : ranks) seconds = std::max(seconds, reports.at(rank).quiet->seconds);
  return seconds;
}

}  // namespace

std::map<int, Quiet> waited_for(const RankReports& reports) {
  std::map<int, Quiet> roots;
  const auto add = [&](int rank, const Quiet& wait) {
    const auto known = reports.find(rank);
    if (known == reports.end() || waits(known->second)) return;
    const auto [place, is_new] = roots.emplace(rank, wait);
    if (!is_new && wait.seconds > place->second.seconds) place->second = wait;
  };
  for (const auto& [rank, report] : reports) {
    if (!waits(report)) continue;
    if (report.quiet->peer >= 0) add(report.quiet->peer, *report.quiet);
    if (report.quiet->peer >= 0) continue;
    for (const auto& [other, ignored] : reports) add(other, *report.quiet);
  }
  return roots;
}

std::string waits_text(const RankReports& reports) {
  const std::vector<int> waiting = ranks_that(reports, waits);
  if (waiting.empty()) return "";
  const std::map<int, Quiet> roots = waited_for(reports);
  if (roots.empty())
    return ranks_text(ranges_of(waiting)) + (waiting.size() == 1 ? " waits" : " wait for each other") +
           " at " + step_in_hand(*reports.at(waiting.front()).quiet) + " for " +
           lasting(longest(reports, waiting));
  std::string text;
  std::size_t named = 0;
  for (const auto& [rank, wait] : roots) {
    if (named++ == kMostNamed) break;
    const RankReport& report = reports.at(rank);
    text += (text.empty() ? "" : "; ") + ("rank " + std::to_string(rank)) + " on " + report.host + " " +
            missing(wait) + " for " + lasting(wait.seconds) + place_of(report);
  }
  if (roots.size() > kMostNamed) text += "; and " + counted(roots.size() - kMostNamed, "other rank");
  return text + "; " + counted(waiting.size(), "rank") + (waiting.size() == 1 ? " waits" : " wait") +
         (roots.size() == 1 ? " for it" : " for them");
}

std::string no_progress_text(const RankReports& reports) {
  const std::vector<int> overdue = ranks_that(reports, is_overdue);
  if (overdue.empty()) return "";
  if (std::string waiting = waits_text(reports); !waiting.empty()) return waiting;
  const auto silent = ranks_that(reports, [](const RankReport& report) {
    return is_overdue(report) && report.quiet->why == Quiet::kSilent;
  });
  if (silent.empty())
    return nobody(reports, overdue) + " has written, computed or read anything for " +
           lasting(longest(reports, overdue)) + stands_text(reports, overdue);
  return ranks_text(ranges_of(silent)) +
         (silent.size() == 1 ? " on " + reports.at(silent[0]).host + " has" : " have") +
         " given no sign of life for " + lasting(longest(reports, silent)) + stands_text(reports, silent);
}

std::string host_without_progress(const RankReports& reports) {
  std::set<std::string> hosts;
  for (const auto& [rank, wait] : waited_for(reports)) hosts.insert(reports.at(rank).host);
  const bool waited = !hosts.empty();
  for (const auto& [rank, report] : reports)
    if (!waited && is_overdue(report)) hosts.insert(report.host);
  return hosts.size() == 1 ? *hosts.begin() : "";
}

std::optional<News> NoProgress::look(const RankReports& reports, Millis now) {
  looked_at_ = now;
  const std::string text = no_progress_text(reports);
  if (!text.empty()) {
    if (!seen_at_) seen_at_ = now;
    if (told_at_ || now - *seen_at_ < kPatience) return std::nullopt;
    told_at_ = now;
    return News{.kind = News::kNoProgress, .host = host_without_progress(reports), .text = text};
  }
  seen_at_.reset();
  if (!told_at_) return std::nullopt;
  const double seconds = static_cast<double>(now - *std::exchange(told_at_, std::nullopt)) / 1000;
  return News{.kind = News::kProgress,
              .host = "",
              .text = "the workers get on again, " + lasting(seconds) + " after they were told of"};
}

}  // namespace dtrun::rendezvous
