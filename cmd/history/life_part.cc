#include "cmd/history/life_part.h"

#include <algorithm>

#include "cmd/history/html.h"
#include "proto/core/text.h"

namespace dtrun::cmd {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kPause = 3600;            // seconds; a longer one begins another picture
constexpr std::size_t kMostStretches = 5;  // the newest
constexpr std::size_t kRows = 64;          // nodes of a picture
constexpr std::size_t kBars = 600;         // of a row: more than its pixels tell nothing
constexpr std::size_t kTableLines = 200;   // of a picture, the newest

std::vector<LifeStretch> shown_stretches(const JobLife& life) {
  std::vector<LifeStretch> stretches = stretches_of(life, kPause);
  std::ranges::reverse(stretches);
  if (stretches.size() > kMostStretches) stretches.resize(kMostStretches);
  return stretches;
}

struct Row {
  std::string host;
  std::vector<WorkSpan> spans;
};

std::vector<Row> rows_of(const JobLife& life, const LifeStretch& stretch) {
  std::vector<Row> rows;
  for (const NodeLife& node : life.nodes) {
    Row row{.host = node.host, .spans = {}};
    for (const WorkSpan& span : node.spans)
      if (span.end >= stretch.begin && span.begin <= stretch.end) row.spans.push_back(span);
    if (!row.spans.empty()) rows.push_back(std::move(row));
  }
  return rows;
}

std::string text_of(const WorkSpan& span) {
  return "generation " + std::to_string(span.generation) + ", world size " + std::to_string(span.world_size) +
         ", " + time_text(span.end - span.begin) + (span.cut_short ? ", no word of its end" : "") + ": " +
         span.reason;
}

void add_bars(const WorkSpan& span, Json& bars) {
  const auto add = [&](const char* kind, double begin, double end) {
    bars.push_back({{"kind", kind}, {"begin", begin}, {"end", end}, {"title", text_of(span)}});
  };
  const double ready = std::max(span.begin, span.ready);
  if (ready > span.begin) add("loading", span.begin, ready);
  add("training", ready, span.end);
}

Json picture_of(const JobLife& life, const LifeStretch& stretch) {
  Json rows = Json::array(), marks = Json::array();
  for (const Row& row : rows_of(life, stretch)) {
    if (rows.size() == kRows) break;
    Json bars = Json::array();
    const std::size_t first = row.spans.size() > kBars ? row.spans.size() - kBars : 0;
    for (std::size_t i = first; i < row.spans.size(); ++i) add_bars(row.spans[i], bars);
    rows.push_back({{"name", shortened(row.host, 18)}, {"bars", std::move(bars)}});
  }
  for (const LifeMark& mark : life.marks)
    if ((mark.kind == "failure" || mark.kind == "hang") && mark.time >= stretch.begin &&
        mark.time <= stretch.end + 1)
      marks.push_back({{"time", mark.time}, {"title", mark.host + ": " + shortened(mark.text, 600)}});
  return {
      {"begin", stretch.begin}, {"end", stretch.end}, {"rows", std::move(rows)}, {"marks", std::move(marks)}};
}

std::string clock(double time) { return utc_text(static_cast<std::int64_t>(time), "%Y-%m-%d %H:%M:%S UTC"); }

std::string table_of_spans(const std::vector<Row>& rows) {
  std::vector<std::pair<double, std::vector<std::string>>> lines;
  for (const Row& row : rows)
    for (const WorkSpan& span : row.spans)
      lines.push_back({span.begin,
                       {clock(span.begin), html_escaped(row.host),
                        span.ready > span.begin ? time_text(span.ready - span.begin) : "–",
                        html_escaped(text_of(span))}});
  std::ranges::stable_sort(lines, std::ranges::greater(), [](const auto& line) { return line.first; });
  std::vector<std::vector<std::string>> cells;
  for (std::size_t i = 0; i < std::min(lines.size(), kTableLines); ++i)
    cells.push_back(std::move(lines[i].second));
  return table_of({"from", "host", "loading", ""}, cells);
}

}  // namespace

Json life_data(const JobLife& life) {
  Json pictures = Json::array();
  for (const LifeStretch& stretch : shown_stretches(life)) pictures.push_back(picture_of(life, stretch));
  return pictures;
}

std::string life_part(const JobLife& life) {
  std::string text;
  std::size_t number = 0;
  for (const LifeStretch& stretch : shown_stretches(life)) {
    const std::vector<Row> rows = rows_of(life, stretch);
    text += "<p>" + clock(stretch.begin) + ", " + duration_text(stretch.end - stretch.begin) +
            "</p><div data-life=\"" + std::to_string(number++) + "\"></div>";
    if (rows.size() > kRows) text += "<p>and " + std::to_string(rows.size() - kRows) + " nodes more</p>";
    text += "<details><summary>numbers</summary>" + table_of_spans(rows) + "</details>\n";
  }
  const std::size_t all = stretches_of(life, kPause).size();
  return text + (all > kMostStretches
                     ? "<p>and " + std::to_string(all - kMostStretches) + " earlier ones</p>\n"
                     : "");
}

}  // namespace dtrun::cmd
