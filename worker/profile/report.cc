#include "worker/profile/report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "proto/core/text.h"
#include "proto/json/json.h"

namespace dtrun::worker {
namespace {

constexpr const char* kOwnStream = "lane";  // the stream of most operations, which tables leave out

struct Column {
  const char* title;
  std::size_t width;
};
constexpr Column kColumns[] = {{"launches", 10}, {"time", 12},  {"of step", 9},    {"TFLOP/s", 9},
                               {"GB/s", 9},      {"floor", 12}, {"of ceiling", 12}};

// The share of each operation in the time: n operations that run at once get 1/n each.
std::vector<double> divided(const std::vector<OpTime>& times) {
  struct Edge {
    double at;
    bool begins;
    std::size_t time;
  };
  std::vector<Edge> edges;
  for (std::size_t i = 0; i < times.size(); ++i) {
    edges.push_back({times[i].begin, true, i});
    edges.push_back({times[i].end, false, i});
  }
  std::ranges::sort(edges, {}, [](const Edge& edge) { return std::tuple(edge.at, edge.begins, edge.time); });
  std::vector<double> shares(times.size(), 0);
  std::vector<std::size_t> running;  // at most one of each stream
  double last = 0;
  for (const Edge& edge : edges) {
    for (const std::size_t time : running)
      shares[time] += (edge.at - last) / static_cast<double>(running.size());
    last = edge.at;
    if (edge.begins && times[edge.time].end > times[edge.time].begin)
      running.push_back(edge.time);
    else
      std::erase(running, edge.time);
  }
  return shares;
}

std::vector<double> durations(const std::vector<OpTime>& times) {
  std::vector<double> seconds;
  for (const OpTime& time : times) seconds.push_back(time.end - time.begin);
  return seconds;
}

double floor_of(const OpCost& cost, const Ceilings& ceilings) {
  return std::max(cost.flops / ceilings.flops, cost.bytes() / ceilings.bytes);
}

std::string name_of(const OpRow& row) {
  std::string name = row.kind.what;
  if (!row.kind.part.empty()) name += ", " + row.kind.part;
  if (row.stream != kOwnStream) name += " (" + row.stream + ")";
  return name;
}

// "654", "12.3", "0.0021": three digits, more or less.
std::string brief(double value) {
  if (value <= 0) return "";
  const int before = static_cast<int>(std::floor(std::log10(value))) + 1;
  return decimals(value, std::clamp(3 - before, 0, 6));
}

// `time` in seconds; empty for 0.
std::string milliseconds(double time) { return time == 0 ? "" : decimals(time * 1e3, 2) + " ms"; }
std::string percent(double share) { return decimals(share * 100, share < 0.0995 ? 1 : 0) + " %"; }

std::string of_ceiling(double floor, double seconds) {
  if (floor <= 0 || seconds <= 0) return "";
  return floor > 10 * seconds ? "> 1000 %" : percent(floor / seconds);
}

// `what` in `first` characters, and a right-aligned cell for each column, as far as there are cells.
std::string line(const std::string& what, std::size_t first, const std::vector<std::string>& cells) {
  std::string text = what + std::string(first - std::min(first, what.size()), ' ');
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::size_t width = kColumns[i].width;
    text += std::string(width - std::min(width, cells[i].size()), ' ') + cells[i];
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

double sum(const std::vector<OpRow>& rows, double OpRow::*field) {
  double sum = 0;
  for (const OpRow& row : rows) sum += row.*field;
  return sum;
}

std::string row_line(const OpRow& row, double step, std::size_t first) {
  const double bytes = row.cost.bytes();
  return line(name_of(row), first,
              {decimals(row.launches, 0), milliseconds(row.seconds), percent(row.share_seconds / step),
               row.seconds > 0 ? brief(row.cost.flops / row.seconds / 1e12) : "",
               row.seconds > 0 ? brief(bytes / row.seconds / 1e9) : "", milliseconds(row.floor),
               of_ceiling(row.floor, row.seconds)});
}

}  // namespace

double Profile::busy() const { return sum(rows, &OpRow::share_seconds); }
double Profile::floor() const { return sum(rows, &OpRow::floor); }

std::vector<OpRow> rows_of(const OpTimes& times, const Ceilings& ceilings, int steps, int lanes) {
  const std::vector<double> shares = lanes == 1 ? divided(times.times) : durations(times.times);
  const double turns = static_cast<double>(steps) * lanes;
  std::map<std::tuple<std::string, std::string, std::string>, OpRow> kinds;
  std::map<const OpRow*, std::set<int>> nodes;
  for (std::size_t i = 0; i < times.times.size(); ++i) {
    const OpTime& time = times.times[i];
    const TimedOp& op = times.ops[static_cast<std::size_t>(time.op)];
    const std::string& stream = times.streams[static_cast<std::size_t>(time.stream)];
    OpRow& row = kinds[{op.kind.what, op.kind.part, stream}];
    row.kind = op.kind;
    row.stream = stream;
    if (op.node >= 0) nodes[&row].insert(op.node);
    row.seconds += (time.end - time.begin) / turns;
    row.share_seconds += shares[i] / turns;
    row.floor += floor_of(op.cost, ceilings) / turns;
    row.cost.flops += op.cost.flops / turns;
    row.cost.read += op.cost.read / turns;
    row.cost.written += op.cost.written / turns;
    row.launches += 1 / turns;
  }
  std::vector<OpRow> rows;
  for (auto& [key, row] : kinds) {
    row.nodes = static_cast<int>(nodes[&row].size());
    rows.push_back(row);
  }
  std::ranges::stable_sort(rows, std::ranges::greater(), &OpRow::share_seconds);
  return rows;
}

OpRow row_beside(const std::string& what, double seconds) {
  return {.kind = {what, ""},
          .stream = kOwnStream,
          .launches = 1,
          .seconds = seconds,
          .share_seconds = seconds,
          .cost = {}};
}

std::string table(const Profile& p) {
  std::size_t first = 38;
  for (const OpRow& row : p.rows) first = std::max(first, name_of(row).size() + 2);
  std::string text = p.job + "\n" + p.machine + "\nceilings" + (p.lanes == 1 ? "" : " of a lane") +
                     ": matmuls " + brief(p.ceilings.flops / 1e12) + " TFLOP/s, memory " +
                     brief(p.ceilings.bytes / 1e9) + " GB/s\n\n";
  std::vector<std::string> titles;
  for (const Column& column : kColumns) titles.emplace_back(column.title);
  text += line(p.lanes == 1 ? "in a step, one by one" : "in a step, of one lane", first, titles);
  for (const OpRow& row : p.rows) text += row_line(row, p.timed_seconds, first);
  text += line("gaps, in which none of these ran", first,
               {"", milliseconds(p.gaps()), percent(p.gaps() / p.timed_seconds)});
  text += line("a step", first,
               {decimals(sum(p.rows, &OpRow::launches), 0), milliseconds(p.timed_seconds), "100 %", "", "",
                milliseconds(p.floor()), of_ceiling(p.floor(), p.timed_seconds)});
  text += line(
      "a step as it is run", first,
      {"", milliseconds(p.seconds), "", "", "", milliseconds(p.floor()), of_ceiling(p.floor(), p.seconds)});
  return text + "\n" + decimals(p.samples / p.seconds, 0) + " samples/s as it is run, over " +
         std::to_string(p.untimed_steps) + " steps; operations timed in " + std::to_string(p.steps) + "\n";
}

std::string json(const Profile& p) {
  Json rows = Json::array();
  for (const OpRow& row : p.rows) {
    const bool forward = row.kind.part.starts_with("forward");
    const bool of_a_pass = !row.kind.part.empty();
    rows.push_back({{"what", row.kind.what},
                    {"part", row.kind.part},
                    {"stream", row.stream},
                    {"nodes", row.nodes},
                    {"launches", row.launches},
                    {"seconds", row.seconds},
                    {"forward_seconds", forward ? row.seconds : 0},
                    {"backward_seconds", of_a_pass && !forward ? row.seconds : 0},
                    {"share", row.share_seconds / p.timed_seconds},
                    {"flops", row.cost.flops},
                    {"bytes", row.cost.bytes()},
                    {"read_bytes", row.cost.read},
                    {"written_bytes", row.cost.written},
                    {"floor_seconds", row.floor},
                    {"of_ceiling", row.seconds > 0 ? row.floor / row.seconds : 0}});
  }
  const Json all{
      {"version", 2},
      {"device", p.device},
      {"job", p.job},
      {"machine", p.machine},
      {"lanes", p.lanes},
      {"steps", p.steps},
      {"untimed_steps", p.untimed_steps},
      {"samples_per_step", p.samples},
      {"step_seconds", p.seconds},
      {"timed_step_seconds", p.timed_seconds},
      {"busy_seconds", p.busy()},
      {"gap_seconds", p.gaps()},
      {"floor_seconds", p.floor()},
      {"data_seconds", p.data},
      {"update_seconds", p.update},
      {"ceiling", {{"flops_per_second", p.ceilings.flops}, {"bytes_per_second", p.ceilings.bytes}}},
      {"rows", rows}};
  return json_text(all, 2) + "\n";
}

}  // namespace dtrun::worker
