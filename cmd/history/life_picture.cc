#include "cmd/history/life_picture.h"

#include <algorithm>
#include <cstdio>

#include "cmd/history/html.h"
#include "proto/core/text.h"

namespace dtrun::cmd {
namespace {

constexpr double kPause = 3600;                          // seconds; a longer one begins another picture
constexpr std::size_t kPictures = 5;                     // the newest
constexpr std::size_t kRows = 64;                        // nodes of a picture
constexpr std::size_t kBars = 600;                       // of a row: more than its pixels tell nothing
constexpr double kLeft = 130, kWidth = 1000, kRow = 18;  // of the picture, in its own units

class Picture {
 public:
  Picture(const JobLife& life, LifeStretch stretch) : life_(life), stretch_(stretch) {}

  std::string draw() {
    for (const NodeLife& node : life_.nodes) draw_row(node);
    for (const LifeMark& mark : life_.marks) draw_mark(mark);
    const double height = kRow * static_cast<double>(rows_ + 2);
    std::string axis = text(kLeft, height - 6, clock(stretch_.begin));
    axis += "<text x=\"" + number(kWidth) + "\" y=\"" + number(height - 6) + "\" text-anchor=\"end\">" +
            clock(stretch_.end) + "</text>";
    const std::string hidden =
        left_out_ > 0 ? "<p>and " + std::to_string(left_out_) + " nodes more</p>" : std::string();
    return "<p>" + clock(stretch_.begin) + ", " + duration_text(stretch_.end - stretch_.begin) +
           "</p><svg role=\"img\" aria-label=\"when which node was at work\" viewBox=\"0 0 " +
           number(kWidth) + " " + number(height) + "\">" + body_ + axis + "</svg>" + hidden + "\n";
  }

 private:
  void draw_row(const NodeLife& node) {
    std::vector<const WorkSpan*> shown;
    for (const WorkSpan& span : node.spans)
      if (span.end >= stretch_.begin && span.begin <= stretch_.end) shown.push_back(&span);
    if (shown.empty()) return;
    if (rows_ == kRows) {
      ++left_out_;
      return;
    }
    if (shown.size() > kBars) shown.erase(shown.begin(), shown.end() - kBars);
    body_ += text(0, y() + 13, escaped(shortened(node.host, 18)));
    for (const WorkSpan* span : shown) draw_bar(*span);
    ++rows_;
  }

  void draw_bar(const WorkSpan& span) {
    const std::string title = "<title>generation " + std::to_string(span.generation) + ", world size " +
                              std::to_string(span.world_size) + ", " + time_text(span.end - span.begin) +
                              (span.cut_short ? ", no word of its end" : "") + ": " + escaped(span.reason) +
                              "</title>";
    body_ += bar("node", span.begin, span.end, title);
    if (span.ready > span.begin) body_ += bar("loads", span.begin, span.ready, title);
  }

  void draw_mark(const LifeMark& mark) {
    if (mark.kind != "failure" && mark.kind != "hang") return;
    if (mark.time < stretch_.begin || mark.time > stretch_.end + 1) return;
    const std::string at = number(x(mark.time)), bottom = number(y());
    body_ += "<line class=\"mark\" x1=\"" + at + "\" x2=\"" + at + "\" y1=\"0\" y2=\"" + bottom +
             "\"><title>" + escaped(mark.host + ": " + mark.text) + "</title></line>";
  }

  std::string bar(const char* kind, double begin, double end, const std::string& title) const {
    const double width = std::max(1.0, x(end) - x(begin) - 0.5);  // neighbours stay apart
    return std::string("<rect class=\"") + kind + "\" x=\"" + number(x(begin)) + "\" y=\"" + number(y() + 2) +
           "\" width=\"" + number(width) + "\" height=\"" + number(kRow - 4) + "\">" + title + "</rect>";
  }

  static std::string text(double x, double y, const std::string& words) {
    return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\">" + words + "</text>";
  }
  static std::string number(double value) { return decimals(value, 1); }
  static std::string clock(double time) {
    return utc_text(static_cast<std::int64_t>(time), "%Y-%m-%d %H:%M:%S UTC");
  }

  double x(double time) const {
    const double share = (time - stretch_.begin) / std::max(1e-3, stretch_.end - stretch_.begin);
    return kLeft + std::clamp(share, 0.0, 1.0) * (kWidth - kLeft);
  }
  double y() const { return kRow * static_cast<double>(rows_); }

  const JobLife& life_;
  const LifeStretch stretch_;
  std::size_t rows_ = 0, left_out_ = 0;
  std::string body_;
};

}  // namespace

std::string life_pictures(const JobLife& life) {
  std::vector<LifeStretch> stretches = stretches_of(life, kPause);
  std::ranges::reverse(stretches);
  std::string text;
  for (std::size_t i = 0; i < std::min(stretches.size(), kPictures); ++i)
    text += Picture(life, stretches[i]).draw();
  if (stretches.size() > kPictures)
    text += "<p>and " + std::to_string(stretches.size() - kPictures) + " earlier ones</p>\n";
  return text;
}

}  // namespace dtrun::cmd
