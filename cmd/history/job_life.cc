#include "cmd/history/job_life.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cmd/history/lines.h"
#include "proto/json/json.h"

namespace dtrun::cmd {
namespace {

// An agent of the file: its host and process.
using AgentKey = std::pair<std::string, std::int64_t>;

struct AgentSpans {
  std::vector<WorkSpan> spans;
  bool works = false;  // the last span has not ended
  double last = 0;     // its newest event
};

class LifeReader {
 public:
  explicit LifeReader(double alive_at) : alive_at_(alive_at) {}

  bool add(const Json& line) {
    if (!line.is_object()) return false;
    const std::string event = text_at(line, "event");
    const auto time = line.find("time");
    if (event.empty() || time == line.end() || !time->is_number()) return false;
    const double now = time->get<double>();
    const std::string host = text_at(line, "host");
    life_.begin = life_.begin == 0 ? now : std::min(life_.begin, now);
    life_.end = std::max(life_.end, now);
    AgentSpans& agent = agents_[{host, number_at<std::int64_t>(line, "agent")}];
    agent.last = std::max(agent.last, now);
    note_work(event, line, now, &agent);
    note_mark(event, line, now, host);
    return true;
  }

  JobLife take(int unreadable) {
    life_.unreadable = unreadable;
    for (const auto& [key, agent] : agents_)
      for (const WorkSpan& span : agent.spans) begins_.push_back(span.begin);
    std::ranges::sort(begins_);
    for (auto& [key, agent] : agents_) cut_short(&agent);
    for (auto& [key, agent] : agents_) place(key.first, std::move(agent.spans));
    std::ranges::stable_sort(life_.nodes, {}, &NodeLife::host);
    if (marks_ > static_cast<std::int64_t>(kMostMarks)) {
      const auto oldest = static_cast<std::ptrdiff_t>(marks_ % static_cast<std::int64_t>(kMostMarks));
      std::rotate(life_.marks.begin(), life_.marks.begin() + oldest, life_.marks.end());
      life_.marks_left_out = marks_ - static_cast<std::int64_t>(kMostMarks);
    }
    return std::move(life_);
  }

 private:
  void note_work(const std::string& event, const Json& line, double now, AgentSpans* agent) {
    if (event == "start") {
      ++life_.starts;
      life_.run_id = text_at(line, "run_id");
      life_.output_dir = text_at(line, "output_dir");
    } else if (event == "start_workers") {
      end_span(now, agent);
      const std::int64_t generation = number_at<std::int64_t>(line, "generation");
      agent->spans.push_back({.begin = now,
                              .end = now,
                              .generation = generation,
                              .world_size = number_at<int>(line, "world_size"),
                              .reason = text_at(line, "reason")});
      agent->works = true;
      life_.generations = std::max(life_.generations, generation);
    } else if (event == "place_worker" && agent->works) {
      agent->spans.back().ready = now;
    } else if (event == "stopped" || event == "finished" || event == "pause_workers" || event == "end") {
      end_span(now, agent);
    }
  }

  static void end_span(double now, AgentSpans* agent) {
    if (std::exchange(agent->works, false)) agent->spans.back().end = now;
  }

  void note_mark(const std::string& event, const Json& line, double now, const std::string& host) {
    const auto who = [&] { return "rank " + std::to_string(number_at<std::int64_t>(line, "rank")) + ": "; };
    if (event == "worker_ended" && text_at(line, "how") != "exit code 0") {
      const std::string error = text_at(line, "error");
      failed_[who()] = error;
    } else if (event == "report_failure") {
      const auto found = line.find("collateral");
      const bool follower = found != line.end() && *found == true;
      life_.failures += follower ? 0 : 1;
      const std::string error = std::exchange(failed_[who()], "");
      mark({now, host, follower ? "follower" : "failure",
            who() + text_at(line, "how") + (error.empty() ? "" : "\n" + error)});
    } else if (event == "hang") {
      mark({now, host, "hang", who() + text_at(line, "what") + "\n" + text_at(line, "where")});
    } else if (event == "straggler") {
      if (const std::string text = text_at(line, "text"); !text.empty()) mark({now, host, "straggler", text});
    } else if (event == "news") {
      mark({now, host, "news", text_at(line, "text")});
    } else if (event == "signal") {
      mark({now, host, "signal", "told to end by " + text_at(line, "signal")});
    } else if (event == "report") {
      life_.report = text_at(line, "text");
    } else if (event == "end") {
      mark({now, host, "end",
            "exit code " + std::to_string(number_at<std::int64_t>(line, "exit_code")) + ": " +
                text_at(line, "reason")});
      if (number_at<std::int64_t>(line, "exit_code") == 0) life_.report.clear();
    }
  }

  // The newest kMostMarks, as a ring until take(). What all nodes tell in turn is told once.
  void mark(LifeMark mark) {
    constexpr double kSameTime = 5;  // seconds
    if (marks_ > 0) {
      const LifeMark& before = life_.marks[static_cast<std::size_t>(marks_ - 1) % kMostMarks];
      const bool again = before.kind == mark.kind && before.text == mark.text && before.host != mark.host;
      if (again && std::abs(mark.time - before.time) < kSameTime) return;
    }
    if (life_.marks.size() < kMostMarks)
      life_.marks.push_back(std::move(mark));
    else
      life_.marks[static_cast<std::size_t>(marks_) % kMostMarks] = std::move(mark);
    ++marks_;
  }

  void cut_short(AgentSpans* agent) const {
    if (!agent->works) return;
    WorkSpan& span = agent->spans.back();
    span.cut_short = true;
    span.end = std::max({span.end, agent->last, next_start_after(span.begin)});
  }

  // At most alive_at_: what the metrics say behind the start of another generation is of that one.
  double next_start_after(double begin) const {
    const auto next = std::ranges::upper_bound(begins_, begin);
    return next == begins_.end() ? alive_at_ : std::min(alive_at_, *next);
  }

  // Into the first row of its host that is free by then. The agents of a host come one after the other.
  void place(const std::string& host, std::vector<WorkSpan> spans) {
    if (spans.empty()) return;
    if (life_.nodes.empty() || life_.nodes.back().host != host) first_row_ = life_.nodes.size();
    for (NodeLife& node : std::span(life_.nodes).subspan(first_row_)) {
      if (node.spans.back().end > spans.front().begin && node.spans.front().begin < spans.back().end)
        continue;
      node.spans.insert(node.spans.end(), spans.begin(), spans.end());
      std::ranges::stable_sort(node.spans, {}, &WorkSpan::begin);
      return;
    }
    life_.nodes.push_back({host, std::move(spans)});
  }

  const double alive_at_;
  JobLife life_;
  std::int64_t marks_ = 0;
  std::map<AgentKey, AgentSpans> agents_;
  std::vector<double> begins_;                 // of all spans, once they are known
  std::size_t first_row_ = 0;                  // of the host that is placed
  std::map<std::string, std::string> failed_;  // error of a worker that ended and was not reported yet
};

}  // namespace

JobLife read_events(std::istream& text, double alive_at) {
  LifeReader reader(alive_at);
  int unreadable = 0;
  for (std::string line; next_line(text, &line);)
    if (!line.empty() && !reader.add(parse_json(line))) ++unreadable;
  return reader.take(unreadable);
}

std::vector<LifeStretch> stretches_of(const JobLife& life, double pause) {
  std::vector<LifeStretch> spans;
  for (const NodeLife& node : life.nodes)
    for (const WorkSpan& span : node.spans) spans.push_back({span.begin, span.end});
  std::ranges::sort(spans, {}, &LifeStretch::begin);
  std::vector<LifeStretch> stretches;
  for (const LifeStretch& span : spans) {
    if (stretches.empty() || span.begin - stretches.back().end > pause)
      stretches.push_back(span);
    else
      stretches.back().end = std::max(stretches.back().end, span.end);
  }
  return stretches;
}

}  // namespace dtrun::cmd
