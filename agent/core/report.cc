#include "agent/core/report.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <iterator>
#include <sstream>
#include <utility>

#include "agent/core/progress_text.h"
#include "proto/core/exit_codes.h"

namespace dtrun::agent {
namespace {

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

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
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

std::string last_words(const WorkerOutcome& worker) {
  std::string text;
  const std::vector<std::string> error = lines_of(worker.error), traceback = lines_of(worker.traceback);
  if (!error.empty()) text += block("error", error);
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

std::string first_failure_text(const WorkerOutcome& first) {
  std::string text = "\n  after " + fixed(first.uptime_s, 1) + " s";
  if (first.ended_at > 0) text += ", at " + utc_text(first.ended_at);
  text += "; local rank " + std::to_string(first.local_rank);
  if (first.pid > 0) text += ", pid " + std::to_string(first.pid);  // else it never ran
  return text + last_words(first);
}

// Followers that ended the same way on one host share a line, since there may be a thousand of them.
std::string followers_text(const JobEnd& end) {
  static constexpr std::size_t kLines = 16;
  std::vector<std::pair<std::string, std::vector<int>>> groups;  // how and where, by first rank
  for (const WorkerOutcome& follower : end.followers) {
    const std::string key =
        " on " + follower.host + ", " + how(follower) + (follower.collateral ? "" : " of its own");
    auto group = std::find_if(groups.begin(), groups.end(), [&](auto& g) { return g.first == key; });
    if (group == groups.end()) group = groups.insert(group, {key, {}});
    group->second.push_back(follower.rank);
  }
  std::string text;
  for (std::size_t i = 0; i < groups.size() && i < kLines; ++i) {
    const auto& [key, ranks] = groups[i];
    text +=
        std::string("\n  followed: ") + (ranks.size() == 1 ? "rank " : "ranks ") + rank_ranges(ranks) + key;
  }
  if (groups.size() > kLines)
    text += "\n  and others on " + std::to_string(groups.size() - kLines) + " more hosts";
  return text;
}

// Why there was no (other) restart: the coordinator's reason without the first failure, which is named above.
std::string verdict(const JobEnd& end) {
  const WorkerOutcome& first = *end.first_failure;
  const std::string named = who(first) + " failed (" + how(first) + "), ";
  if (end.reason.starts_with(named)) return end.reason.substr(named.size());
  return first.retryable ? "" : "the same failure would come back";
}

std::string restarts_text(const JobEnd& end, int max_restarts) {
  if (max_restarts == 0) return "";
  const std::string used = std::to_string(end.restart_count) + " of " + std::to_string(max_restarts);
  const std::string why = end.restart_count < max_restarts ? verdict(end) : "";
  return "\n  restarts used: " + used + (why.empty() ? "" : " (" + why + ")");
}

}  // namespace

std::string failure_report(const JobEnd& end, int max_restarts, const std::string& file, ReportStyle style) {
  std::string heading = end.reason, rest;
  if (end.first_failure) {
    heading = "the job failed: " + who(*end.first_failure) + " failed first: " + how(*end.first_failure);
    rest = first_failure_text(*end.first_failure) + restarts_text(end, max_restarts) + followers_text(end);
    if (!file.empty()) rest += "\n  all of it: " + file;
  }
  return style.palette.error(heading) + rest + (style.terminal ? "\n" : "");
}

std::string done_line(const Completion& completion) {
  std::string text = "done: " + std::to_string(completion.step) + " steps";
  if (completion.accuracy >= 0) text += ", test accuracy " + fixed(100 * completion.accuracy, 1) + " %";
  text += ", loss " + fixed(completion.loss, 3);
  if (!completion.model_path.empty()) text += ", model in " + completion.model_path;
  return text;
}

std::string describe_signal(int number) {
  const char* name = sigabbrev_np(number);
  return name ? std::string("SIG") + name : "signal " + std::to_string(number);
}

std::string rank_ranges(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (i > 0) text += ", ";
    text += std::to_string(ranks[i]);
    if (last > i) text += "-" + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

std::string utc_text(double seconds) {
  const std::time_t whole = static_cast<std::time_t>(seconds);
  std::tm parts{};
  gmtime_r(&whole, &parts);
  char text[64];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts)};
}

}  // namespace dtrun::agent
