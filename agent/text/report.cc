#include "agent/text/report.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "proto/core/exit_codes.h"
#include "proto/core/text.h"
#include "rendezvous/core/observe/hang.h"
#include "rendezvous/core/rank_set.h"

namespace dtrun::agent {
namespace {

using rendezvous::Activity;
using rendezvous::Hang;
using rendezvous::JobEnd;
using rendezvous::LocationGroup;
using rendezvous::WorkerOutcome;

std::string who(const WorkerOutcome& outcome) {
  return "rank " + std::to_string(outcome.rank) + " on " + outcome.host;
}

// `tail` without the lines that `traceback` already showed: when an uncaught exception ends a program, both
// have the same last lines.
std::vector<std::string> without_traceback(const std::vector<std::string>& tail,
                                           const std::vector<std::string>& traceback) {
  const auto last = std::find(tail.rbegin(), tail.rend(), traceback.back());
  auto begin = last, shown = last;
  for (auto line = traceback.rbegin(); begin != tail.rend() && line != traceback.rend() && *begin == *line;
       ++line) {
    ++begin;
  }
  if (begin - shown < 2) return tail;  // one equal line is no traceback
  std::vector<std::string> rest(tail.begin(), begin.base());
  rest.push_back("(the traceback above)");
  rest.insert(rest.end(), shown.base(), tail.end());
  return rest;
}

std::string block(const std::string& title, const std::vector<std::string>& lines) {
  std::string text = "\n  " + title + ":";
  for (const std::string& line : lines) text += line.empty() ? "\n" : "\n    " + line;
  return text;
}

// `tail` without `error` at its end: a program that names its error mostly prints it last as well.
std::vector<std::string> without_error(std::vector<std::string> tail, const std::vector<std::string>& error) {
  const bool ends_in_it =
      error.size() <= tail.size() && std::equal(error.rbegin(), error.rend(), tail.rbegin());
  if (ends_in_it) tail.resize(tail.size() - error.size());
  return tail;
}

// A fault that every rank finds for itself, such as a divergence, is one fault.
bool is_alike(const WorkerOutcome& follower, const WorkerOutcome& first) {
  return !first.error.empty() && follower.error == first.error && follower.exit_code == first.exit_code &&
         follower.signal == first.signal;
}

// "error", or "error of ranks 0-1, the same for each".
std::string error_title(const JobEnd& end) {
  std::vector<int> ranks{end.first_failure->rank};
  for (const WorkerOutcome& follower : end.followers)
    if (is_alike(follower, *end.first_failure)) ranks.push_back(follower.rank);
  std::ranges::sort(ranks);
  if (ranks.size() == 1) return "error";
  return "error of " + rendezvous::ranks_text(rendezvous::ranges_of(ranks)) + ", the same for each";
}

std::string last_words(const WorkerOutcome& worker, const std::string& error_title) {
  std::string text;
  const std::vector<std::string> error = split(worker.error), traceback = split(worker.traceback);
  if (!error.empty()) text += block(error_title, error);
  if (!traceback.empty()) text += block("traceback", traceback);
  const std::vector<std::string> tail = traceback.empty() ? without_error(worker.stderr_tail, error)
                                                          : without_traceback(worker.stderr_tail, traceback);
  const auto is_blank = [](const std::string& line) { return line.find_first_not_of(" \t\r") == line.npos; };
  const auto begin = std::find_if_not(tail.begin(), tail.end(), is_blank);
  const auto end = std::find_if_not(tail.rbegin(), std::make_reverse_iterator(begin), is_blank).base();
  if (begin != end) text += block("last lines of its stderr", {begin, end});
  return text;
}

std::string how(const WorkerOutcome& worker) {
  return describe_exit(worker.exit_code, worker.signal, worker.cause);
}

std::string first_failure_text(const WorkerOutcome& first, const std::string& error_title) {
  std::string text = "\n  after " + decimals(first.uptime_s, 1) + " s";
  if (first.ended_at > 0)
    text += ", at " + utc_text(static_cast<std::int64_t>(first.ended_at), "%Y-%m-%d %H:%M:%S UTC");
  text += "; local rank " + std::to_string(first.local_rank);
  if (first.pid > 0) text += ", pid " + std::to_string(first.pid);  // else it never ran
  for (const std::string& line : split(first.gpu)) text += "\n  " + line;
  return text + last_words(first, error_title);
}

// Followers that ended the same way on one host share a line, since there may be a thousand of them.
std::string followers_text(const JobEnd& end) {
  static constexpr std::size_t kLines = 16;
  std::vector<std::pair<std::string, std::vector<int>>> groups;  // how and where, by first rank
  for (const WorkerOutcome& follower : end.followers) {
    if (end.hang && follower.activity != Activity::kUnseen) continue;           // it is among the places
    if (end.first_failure && is_alike(follower, *end.first_failure)) continue;  // it is among the first's
    const std::string key =
        " on " + follower.host + ", " + how(follower) + (follower.collateral ? "" : " of its own");
    auto group = std::find_if(groups.begin(), groups.end(), [&](auto& g) { return g.first == key; });
    if (group == groups.end()) group = groups.insert(group, {key, {}});
    group->second.push_back(follower.rank);
  }
  std::string text;
  for (std::size_t i = 0; i < groups.size() && i < kLines; ++i) {
    const auto& [key, ranks] = groups[i];
    text += "\n  followed: " + rendezvous::ranks_text(rendezvous::ranges_of(ranks)) + key;
  }
  if (groups.size() > kLines)
    text += "\n  and others on " + std::to_string(groups.size() - kLines) + " more hosts";
  return text;
}

// Why there was no (other) restart: the coordinator's reason without the first failure, which is named above.
std::string verdict(const JobEnd& end) {
  const std::string named = end.hang
                                ? rendezvous::describe(*end.hang) + ", "
                                : who(*end.first_failure) + " failed (" + how(*end.first_failure) + "), ";
  if (end.reason.starts_with(named)) return end.reason.substr(named.size());
  return end.hang || end.first_failure->retryable ? "" : "the same failure would come back";
}

std::string restarts_text(const JobEnd& end, int max_restarts) {
  if (max_restarts == 0) return "";
  const std::string used = std::to_string(end.restart_count) + " of " + std::to_string(max_restarts);
  const std::string why = end.restart_count < max_restarts ? verdict(end) : "";
  return "\n  restarts used: " + used + (why.empty() ? "" : " (" + why + ")");
}

// One line if it is short.
std::string places_lines(const Hang& hang) {
  static constexpr std::size_t kLine = 100;
  const std::string all = rendezvous::places_text(hang, rendezvous::kMaxPlaces);
  if (all.size() <= kLine) return "\n  " + all;
  std::string text;
  for (const LocationGroup& place : hang.places) {
    Hang alone;
    alone.places = {place};
    text += "\n  " + rendezvous::places_text(alone, 1);
  }
  if (hang.more > 0) text += "\n  " + std::to_string(hang.more) + " more elsewhere";
  return text;
}

// The worker at fault may be unknown: then no worker is named, and no worker's last words are shown.
std::string hang_report(const JobEnd& end) {
  const Hang& hang = *end.hang;
  std::string text = places_lines(hang);
  if (!hang.verdict.empty()) text += "\n  " + hang.verdict;
  return text;
}

bool is_at_fault(const WorkerOutcome& first) { return rendezvous::is_at_fault(first.activity); }

std::string heading_of(const JobEnd& end) {
  const auto& first = end.first_failure;
  if (end.hang && (!first || !is_at_fault(*first))) {
    return "the job failed: " + rendezvous::ranks_text(end.hang->ranks) +
           (rendezvous::is_one(end.hang->ranks) ? " hangs" : " hang") +
           (end.hang->what.empty() ? "" : ": " + end.hang->what);
  }
  return first ? "the job failed: " + who(*first) + " failed first: " + how(*first) : end.reason;
}

}  // namespace

std::string failure_report(const JobEnd& end, int max_restarts, const std::string& file, ReportStyle style) {
  std::string rest;
  if (end.hang) rest += hang_report(end);
  if (end.first_failure) {
    WorkerOutcome first = *end.first_failure;
    if (end.hang && first.error == end.hang->what && !is_at_fault(first))
      first.error.clear();  // the heading says it
    rest += first_failure_text(first, error_title(end));
  }
  if (end.hang || end.first_failure) {
    rest += restarts_text(end, max_restarts) + followers_text(end);
    if (!file.empty()) rest += "\n  all of it: " + file;
  }
  return style.palette.error(heading_of(end)) + rest + (style.terminal ? "\n" : "");
}

std::string describe_signal(int number) {
  const char* name = sigabbrev_np(number);
  return name ? std::string("SIG") + name : "signal " + std::to_string(number);
}

}  // namespace dtrun::agent
