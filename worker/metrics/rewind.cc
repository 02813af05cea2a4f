#include "worker/metrics/rewind.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <string_view>

#include "proto/json/json.h"

namespace dtrun::worker {

namespace {

struct MetricsLine {
  std::uint64_t begin = 0;  // in the file
  std::string text;         // with its newline; without one, it is torn
};

// A file's lines, the last one first.
class LinesUpwards {
 public:
  LinesUpwards(int fd, std::uint64_t size) : fd_(fd), start_(size) {}

  // Nothing at the file's beginning, or after a failure, which error() returns.
  std::optional<MetricsLine> next() {
    while (error_ == 0) {
      // The newline at the very end belongs to the line.
      const std::size_t newline = text_.size() < 2 ? text_.npos : text_.rfind('\n', text_.size() - 2);
      if (newline != text_.npos || (start_ == 0 && !text_.empty())) {
        const std::size_t begin = newline == text_.npos ? 0 : newline + 1;
        MetricsLine line{start_ + begin, text_.substr(begin)};
        text_.resize(begin);
        return line;
      }
      if (start_ == 0) return std::nullopt;
      read_more();
    }
    return std::nullopt;
  }
  int error() const { return error_; }

 private:
  // Puts the piece of the file before text_ in front of text_. Each piece is as long as text_, so that a line
  // of any length is copied only a few times.
  void read_more() {
    constexpr std::uint64_t kPiece = 64 * 1024;
    std::string piece(std::min(start_, std::max<std::uint64_t>(kPiece, text_.size())), '\0');
    start_ -= piece.size();
    for (std::size_t done = 0; done < piece.size();) {
      const ssize_t count =
          pread(fd_, piece.data() + done, piece.size() - done, static_cast<off_t>(start_ + done));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        error_ = count < 0 ? errno : EIO;  // the file became shorter
        return;
      }
      done += static_cast<std::size_t>(count);
    }
    text_.insert(0, piece);
  }

  const int fd_;
  std::uint64_t start_;  // offset of text_ in the file
  std::string text_;     // read and not yet handed out
  int error_ = 0;
};

struct LineVerdict {
  bool keep = false;
  bool settled = false;  // of an earlier step, as all preceding lines are
  bool training = false;
  bool evaluation = false;
};

// The line of a run's end is dropped, since the run goes on.
LineVerdict judge(std::string_view text, std::int64_t resume_step) {
  if (!text.ends_with('\n')) return {};
  const Json json = parse_json(text);
  if (!json.is_object() || json.value("event", Json()) == "end") return {};
  const Json step = json.value("step", Json());
  if (!step.is_number_integer()) return {.keep = true};
  const auto number = step.get<std::int64_t>();
  const Json event = json.value("event", Json());
  // The run that goes on from there writes another line of its start.
  const bool begins_again = number == resume_step && event == "start";
  return {.keep = number <= resume_step && !begins_again,
          .settled = number < resume_step,
          .training = number == resume_step && event == "train",
          .evaluation = number == resume_step && event == "eval"};
}

// 0, or errno. The lines to be kept behind `size` are few; a crash in between loses only those.
int cut(int fd, std::uint64_t size, std::string_view kept) {
  if (ftruncate(fd, static_cast<off_t>(size)) != 0) return errno;
  while (!kept.empty()) {
    const ssize_t count = write(fd, kept.data(), kept.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    kept.remove_prefix(static_cast<std::size_t>(count));
  }
  return 0;
}

}  // namespace

Rewound rewind_metrics(int fd, std::int64_t resume_step) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return {.error = errno};
  LinesUpwards lines(fd, static_cast<std::uint64_t>(status.st_size));
  Rewound result;
  std::optional<std::uint64_t> first_dropped;
  std::string kept, kept_behind_dropped;  // kept lines so far; those behind first_dropped
  for (std::optional<MetricsLine> line; (line = lines.next());) {
    const LineVerdict verdict = judge(line->text, resume_step);
    result.trained = result.trained || verdict.training;
    result.evaluated = result.evaluated || verdict.evaluation;
    if (verdict.settled) break;
    if (verdict.keep) {
      kept.insert(0, line->text);
    } else {
      first_dropped = line->begin;
      kept_behind_dropped = kept;
    }
  }
  result.error = lines.error();
  if (result.error == 0 && first_dropped) result.error = cut(fd, *first_dropped, kept_behind_dropped);
  return result;
}

}  // namespace dtrun::worker
