#include "cmd/history/page.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "cmd/history/assets.h"
#include "cmd/history/curves.h"
#include "cmd/history/html.h"
#include "cmd/history/life_part.h"
#include "proto/core/text.h"
#include "proto/json/json.h"
#include "proto/web/web.h"

namespace dtrun::cmd {
namespace {

// Of all curves of a page: with nine digits each it stays below a megabyte.
constexpr std::size_t kMostPoints = 24000;
constexpr std::size_t kMostPointsOfCurve = 2000;
constexpr std::size_t kMostLengthOfEvent = 600, kMostEvents = 200;

// Nine digits tell all values of 32 bits apart.
double rounded(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.9g", value);
  return std::strtod(text.data(), nullptr);
}

Json data_of(const std::vector<Chart>& charts, const std::vector<CurvePoint>& generations = {},
             const JobLife& life = {}) {
  std::size_t curves = 0;
  for (const Chart& chart : charts) curves += chart.curves.size();
  const std::size_t most =
      std::clamp(kMostPoints / std::max<std::size_t>(1, curves), std::size_t{4}, kMostPointsOfCurve);
  Json data = {{"charts", Json::array()}, {"generations", Json::array()}, {"lives", life_data(life)}};
  for (const Chart& chart : charts) {
    Json json = {{"curves", Json::array()}, {"stacked", chart.stacked}};
    for (const ChartCurve& curve : chart.curves) {
      Json points = Json::array();
      for (const CurvePoint& point :
           chart.stacked ? averaged(curve.points, most) : thinned(curve.points, most))
        points.push_back({point.step, rounded(point.value)});
      json["curves"].push_back({{"name", curve.name}, {"points", std::move(points)}});
    }
    data["charts"].push_back(std::move(json));
  }
  const std::size_t first = generations.size() > 200 ? generations.size() - 200 : 0;
  for (std::size_t i = first; i < generations.size(); ++i)
    data["generations"].push_back({generations[i].step, generations[i].value});
  return data;
}

std::string short_number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", value);
  return text.data();
}

// What a curve's picture tells, for those who do not see it.
std::string table_of_curves(const Chart& chart) {
  std::vector<std::vector<std::string>> rows;
  for (const ChartCurve& curve : chart.curves) {
    const auto [low, high] = std::ranges::minmax(curve.points, {}, &CurvePoint::value);
    const auto cell = [](const CurvePoint& point) {
      return short_number(point.value) + " at " + with_thousands(static_cast<std::uint64_t>(point.step));
    };
    rows.push_back({html_escaped(curve.name), std::to_string(curve.points.size()), cell(curve.points.front()),
                    cell(low), cell(high), cell(curve.points.back())});
  }
  return "<details><summary>numbers</summary>" +
         table_of({"curve", "points", "first, at step", "lowest", "highest", "last"}, rows) + "</details>";
}

std::string charts_part(const std::vector<Chart>& charts) {
  if (charts.empty()) return "<p>There are no curves: metrics.jsonl has no line of training.</p>\n";
  std::string text =
      "<noscript><p>The pictures need JavaScript; their numbers are below each.</p></noscript>"
      "<div class=\"charts\">\n";
  for (std::size_t i = 0; i < charts.size(); ++i) {
    text += "<div class=\"chart\" data-chart=\"" + std::to_string(i) + "\">";
    if (charts[i].log_scale) text += "<label><input type=\"checkbox\"> logarithmic</label>";
    text += "<h3>" + html_escaped(charts[i].title) +
            "</h3><div class=\"legend\"></div><div class=\"curves\"></div>" + table_of_curves(charts[i]) +
            "</div>\n";
  }
  return text + "</div>\n";
}

std::string goodput_part(const RunHistory& run) {
  double total = 0;
  for (const TimeKind& kind : run.goodput) total += kind.seconds;
  if (total <= 0) return "<p>–: only the end of a run tells it (report.json).</p>\n";
  std::string bar;
  std::vector<std::vector<std::string>> rows;
  for (const TimeKind& kind : run.goodput) {
    const std::string colour = "kind-" + html_escaped(kind.name),
                      share = decimals(100 * kind.seconds / total, 1);
    if (kind.seconds > 0)
      bar += "<span class=\"" + colour + "\" style=\"flex:" + short_number(kind.seconds / total) +
             "\" title=\"" + html_escaped(kind.name) + "\"></span>";
    rows.push_back({"<span class=\"swatch " + colour + "\"></span>" + html_escaped(kind.name),
                    time_text(kind.seconds), share + " %"});
  }
  return "<p>" + decimals(100 * run.goodput_ratio, 1) + " % of " + time_text(total) +
         " trained the model.</p><div class=\"bar\">" + bar + "</div>" + table_of({}, rows);
}

std::string events_part(const JobLife& life) {
  std::vector<std::vector<std::string>> rows;
  const std::size_t first = life.marks.size() > kMostEvents ? life.marks.size() - kMostEvents : 0;
  for (std::size_t i = first; i < life.marks.size(); ++i) {
    const LifeMark& mark = life.marks[i];
    const bool bad = mark.kind == "failure" || mark.kind == "hang";
    rows.push_back({utc_text(static_cast<std::int64_t>(mark.time), "%Y-%m-%d&nbsp;%H:%M:%S"),
                    html_escaped(mark.host), bad ? "<span class=\"bad\">" + mark.kind + "</span>" : mark.kind,
                    "<pre>" + html_escaped(shortened(mark.text, kMostLengthOfEvent)) + "</pre>"});
  }
  if (rows.empty()) return "";
  const std::int64_t hidden = life.marks_left_out + static_cast<std::int64_t>(first);
  return (hidden > 0 ? "<p>the newest; " + std::to_string(hidden) + " before them are in events.jsonl</p>"
                     : "") +
         table_of({"UTC", "host", "what", ""}, rows);
}

std::string config_part(const RunHistory& run) {
  if (run.config.empty()) return "<p>–: there is no config.json.</p>\n";
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, value] : run.config)
    rows.push_back({html_escaped(name), "<code>" + html_escaped(value) + "</code>"});
  return "<details><summary>" + std::to_string(rows.size()) + " entries</summary>" + table_of({}, rows) +
         "</details>";
}

std::string remarks_part(const RunHistory& run) {
  std::string text;
  for (const std::string& remark : run.remarks) text += "<p>" + html_escaped(remark) + "</p>\n";
  return text;
}

std::string heading(const RunHistory& run) {
  return "<p class=\"" + std::string(run.failed ? "bad" : "good") + "\">" + html_escaped(run.outcome) +
         "</p>\n" +
         (run.verdict.empty() ? "" : "<p><strong>" + html_escaped(run.verdict) + "</strong></p>\n") +
         remarks_part(run);
}

std::string document(const std::string& title, const std::string& body, const Json& data) {
  std::string page =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">"
      "<link rel=\"icon\" href=\"data:,\"><title>" +
      html_escaped(title) + "</title>\n<style>";
  page.append(kDygraphsStyle).append(kPicturesStyle).append(kPageStyle) +=
      "</style></head><body>\n<h1>" + html_escaped(title) + "</h1>\n" + body;
  page +=
      "<footer>made by dtrun report; curves by dygraphs (MIT licence)</footer>\n"
      "<script type=\"application/json\" id=\"data\">";
  page += for_script(ascii_json_text(data)) + "</script>\n<script>";
  page.append(kDygraphs).append("</script>\n<script>").append(kPictures) += "</script>\n<script>";
  page.append(kPageScript) += "</script>\n</body></html>\n";
  return page;
}

}  // namespace

std::string report_page(const RunHistory& run) {
  std::vector<std::vector<std::string>> facts;
  for (const RunFact& fact : run.facts)
    if (!fact.name.starts_with(kTimeOfKind))
      facts.push_back({html_escaped(fact.name), html_escaped(fact.text)});
  std::string body = heading(run) + "<h2>In numbers</h2>\n" + table_of({}, facts);
  if (!run.failure.empty()) body += "<h2>What failed</h2>\n<pre>" + html_escaped(run.failure) + "</pre>\n";
  body += "<h2>Curves</h2>\n" + charts_part(run.charts);
  body += "<h2>Goodput</h2>\n" + goodput_part(run);
  const std::string pictures = life_part(run.life);
  body +=
      "<h2>Life of the job</h2>\n" +
      (pictures.empty() ? "<p>–: there is no events.jsonl, or no workers were started.</p>\n" : pictures) +
      events_part(run.life);
  body += "<h2>Config</h2>\n" + config_part(run);
  return document("run " + run.name, body, data_of(run.charts, run.generation_steps, run.life));
}

std::string comparison_page(const RunHistory& a, const RunHistory& b, const Comparison& comparison) {
  const auto rows_of = [](const std::vector<Difference>& differences) {
    std::vector<std::vector<std::string>> rows;
    for (const Difference& one : differences)
      rows.push_back(
          {html_escaped(one.name), html_escaped(one.a), html_escaped(one.b), html_escaped(one.change)});
    return rows;
  };
  std::string body = "<h2>A: " + html_escaped(a.name) + "</h2>\n" + heading(a) +
                     "<h2>B: " + html_escaped(b.name) + "</h2>\n" + heading(b) + "<h2>In numbers</h2>\n" +
                     table_of({"", "A", "B", "B against A"}, rows_of(comparison.facts)) +
                     "<h2>Config, where it differs</h2>\n";
  body += comparison.config.empty() ? "<p>It does not.</p>\n"
                                    : table_of({"", "A", "B", ""}, rows_of(comparison.config));
  body += "<h2>Curves</h2>\n" + charts_part(comparison.charts);
  return document(a.name + " and " + b.name, body, data_of(comparison.charts));
}

}  // namespace dtrun::cmd
