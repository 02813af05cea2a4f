#include "rendezvous/core/observe/hang.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "rendezvous/core/rank_set.h"

namespace dtrun::rendezvous {
namespace {

constexpr char kSilent[] = "stopped giving heartbeats";
constexpr char kRaised[] = "raised an error and did not end";

using Standings = std::map<int, StackLocation>;
using Ranks = std::vector<int>;
struct Suspicion {
  Ranks suspects;
  std::string one, several;  // the verdict's verb phrase for one worker and for several
  bool known = false;        // no inference
};

bool computes(Activity activity) { return activity == Activity::kComputes; }

Ranks ranks_that(const Standings& locations, const std::function<bool(Activity)>& fits) {
  Ranks ranks;
  for (const auto& [rank, location] : locations)
    if (fits(location.activity)) ranks.push_back(rank);
  return ranks;
}

// Where all compute, all of them get nowhere.
Ranks hung(const Standings& locations) {
  if (Ranks known = ranks_that(locations, is_at_fault); !known.empty()) return known;
  Ranks standing = ranks_that(locations, std::not_fn(computes));
  return !standing.empty() ? standing : ranks_that(locations, computes);
}

// The ranks at each place, the most first; ties by their first rank.
std::vector<std::pair<std::string, Ranks>> grouped(const Standings& locations) {
  std::map<std::string, Ranks> at;
  for (const auto& [rank, location] : locations) at[location.where].push_back(rank);
  std::vector<std::pair<std::string, Ranks>> groups(at.begin(), at.end());
  std::sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
    return a.second.size() != b.second.size() ? a.second.size() > b.second.size() : a.second < b.second;
  });
  return groups;
}

Suspicion verdict_on(const Standings& locations, const std::vector<std::pair<std::string, Ranks>>& groups) {
  const std::size_t all = locations.size();
  for (const auto& [activity, words] :
       {std::pair{Activity::kRaised, kRaised}, {Activity::kSilent, kSilent}}) {
    Ranks known = ranks_that(locations, [wanted = activity](Activity one) { return one == wanted; });
    if (!known.empty()) return {std::move(known), words, words, true};
  }
  if (Ranks busy = ranks_that(locations, computes); !busy.empty() && busy.size() < all)
    return {std::move(busy), "which computes", "which compute"};
  if (Ranks elsewhere = ranks_that(locations, [](Activity s) { return s == Activity::kElsewhere; });
      !elsewhere.empty() && elsewhere.size() < all)
    return {std::move(elsewhere), "which does not wait for another rank",
            "which do not wait for another rank"};
  const std::size_t most = groups.empty() ? 0 : groups[0].second.size();
  if (groups.size() < 2 || most < 2 * (all - most)) return {};
  Ranks others;
  for (std::size_t i = 1; i < groups.size(); ++i)
    others.insert(others.end(), groups[i].second.begin(), groups[i].second.end());
  std::sort(others.begin(), others.end());
  return {std::move(others), "which is not where the others are", "which are not where the others are"};
}

std::string text_of(const Suspicion& verdict, const Standings& locations, std::size_t places) {
  if (locations.size() < 2) return "";
  if (verdict.suspects.empty())
    return places == 1 ? "all stand at the same place: no rank stands out"
                       : "they stand at different places: no rank stands out";
  std::set<std::string> hosts, theirs;
  for (const auto& [rank, location] : locations) hosts.insert(location.host);
  for (int rank : verdict.suspects) theirs.insert(locations.at(rank).host);
  std::vector<RankRange> ranges = ranges_of(verdict.suspects);
  const bool too_many = ranges.size() > kMaxRanges;
  if (too_many) ranges.resize(kMaxRanges);
  const std::string who = ranks_text(ranges) + (too_many ? ", …" : "") +
                          (hosts.size() > 1 && theirs.size() == 1 ? " on " + *theirs.begin() : "");
  if (verdict.known) return who + " " + verdict.one;
  return "likely cause: " + who + ", " + (verdict.suspects.size() == 1 ? verdict.one : verdict.several);
}

std::vector<RankRange> first_ranges(const Ranks& ranks, int* more = nullptr) {
  std::vector<RankRange> ranges = ranges_of(ranks);
  if (ranges.size() > kMaxRanges) ranges.resize(kMaxRanges);
  int kept = 0;
  for (const RankRange& range : ranges) kept += range.last - range.first + 1;
  if (more != nullptr) *more = static_cast<int>(ranks.size()) - kept;
  return ranges;
}

}  // namespace

Hang judge_hang(const Standings& locations, const std::string& what) {
  const auto groups = grouped(locations);
  const Suspicion verdict = verdict_on(locations, groups);
  Hang hang;
  hang.ranks = first_ranges(hung(locations));
  hang.what = what;
  hang.suspects = first_ranges(verdict.suspects);
  hang.verdict = text_of(verdict, locations, groups.size());
  for (const auto& [where, ranks] : groups) {
    if (hang.places.size() == kMaxPlaces) {
      hang.more += static_cast<int>(ranks.size());
      continue;
    }
    LocationGroup& place = hang.places.emplace_back();
    place.where = where;
    place.ranks = first_ranges(ranks, &place.more);
  }
  return hang;
}

std::string places_text(const Hang& hang, std::size_t most) {
  std::string text;
  int more = hang.more;
  for (std::size_t i = 0; i < hang.places.size(); ++i) {
    const LocationGroup& place = hang.places[i];
    if (i >= most) {
      for (const RankRange& range : place.ranks) more += range.last - range.first + 1;
      more += place.more;
      continue;
    }
    if (!text.empty()) text += " · ";
    text += ranks_text(place.ranks);
    if (place.more > 0) text += " and " + std::to_string(place.more) + " more";
    text += ": " + place.where;
  }
  if (more > 0) text += " · " + std::to_string(more) + " more elsewhere";
  return text;
}

std::string describe(const Hang& hang) {
  static constexpr std::size_t kPlaces = 3;  // in a line that has more to say
  return ranks_text(hang.ranks) + (is_one(hang.ranks) ? " hangs: " : " hang: ") + places_text(hang, kPlaces) +
         (hang.verdict.empty() ? "" : "; " + hang.verdict);
}

}  // namespace dtrun::rendezvous
