#include "agent/output/log_writer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "proto/core/utf8.h"

namespace dtrun::agent {

std::string run_folder(const std::string& run_id) {
  std::string folder = run_id;
  std::replace(folder.begin(), folder.end(), '/', '_');
  return folder.empty() || folder == "." || folder == ".." ? "_" + folder : folder;
}

std::filesystem::path worker_log_dir(const std::filesystem::path& log_dir, const std::string& run_id,
                                     std::int64_t generation, int rank) {
  if (log_dir.empty()) return {};
  return log_dir / run_folder(run_id) / ("attempt_" + std::to_string(generation)) / std::to_string(rank);
}

LogWriter::LogWriter(Console& console, Console::Stream stream, StreamPlan plan, std::function<void()> written)
    : console_(console), stream_(stream), plan_(std::move(plan)) {
  if (!plan_.file) return;
  // What was shown already is not shown again.
  const bool shown = plan_.console;
  plan_.file->listen({.failed = [this](const Status& status) { file_failed(status); },
                      .unwritten =
                          [this, shown](const std::string& text) {
                            if (!shown) show_unwritten(text);
                          },
                      .written = std::move(written)});
}

LogWriter::~LogWriter() {
  if (plan_.file) plan_.file->listen({});
}

void LogWriter::push(std::string_view bytes) {
  note_time();
  write_file(bytes);
  if (verbatim()) shown_.append(bytes);
  cutter_.push(bytes, [this](std::string_view line) { take_line(line); });
  show_unfinished();
  show();
}

void LogWriter::finish() {
  note_time();
  cutter_.finish([this](std::string_view line) { take_line(line); });
  console_.set_unfinished(this, "");
  show();
}

bool LogWriter::verbatim() const { return plan_.console && plan_.verbatim && !console_.is_terminal(stream_); }

void LogWriter::note_time() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  if (plan_.timestamps || plan_.prefix.has_time())
    time_ = timestamp(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

void LogWriter::write_file(std::string_view bytes) {
  if (plan_.file && plan_.file->takes())
    plan_.file->write(std::string(plan_.timestamps ? stamped(bytes) : bytes));
}

// `bytes` with the time before each line that begins in them.
std::string_view LogWriter::stamped(std::string_view bytes) {
  stamped_.clear();
  while (!bytes.empty()) {
    if (at_line_start_) stamped_.append(time_).push_back(' ');
    const std::size_t newline = bytes.find('\n');
    at_line_start_ = newline != std::string_view::npos;
    const std::size_t length = at_line_start_ ? newline + 1 : bytes.size();
    stamped_.append(bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
  return stamped_;
}

void LogWriter::take_line(std::string_view line) {
  ++lines_;
  const std::string_view unshown = line.substr(std::min(rest_shown_, line.size()));
  const bool cut = std::exchange(rest_shown_, 0) > 0;
  if (plan_.console && !verbatim() && !(cut && unshown.empty()))
    append_line(&shown_, cut || console_.is_terminal(stream_) ? overwritten(unshown) : line);
  if (plan_.filtered) filter(line);
  tail_.push(line);
}

bool LogWriter::unshown() const {
  return plan_.console && !verbatim() && !console_.is_terminal(stream_) &&
         cutter_.rest().size() > rest_shown_;
}

// Of a bar that was drawn several times the last state.
void LogWriter::show_rest() {
  if (!unshown()) return;
  append_line(&shown_, overwritten(cutter_.rest().substr(rest_shown_)));
  rest_shown_ = cutter_.rest().size();
  show();
}

// A terminal shows a progress bar or a prompt before its line ends.
void LogWriter::show_unfinished() {
  if (!plan_.console || !console_.is_terminal(stream_)) return;
  const std::string_view rest = overwritten(cutter_.rest());
  if (rest.empty()) return console_.set_unfinished(this, "");
  std::string line;
  append_line(&line, rest);
  line.pop_back();
  console_.set_unfinished(this, line);
}

void LogWriter::append_line(std::string* out, std::string_view line) const {
  if (plan_.timestamps) out->append(time_).push_back(' ');
  plan_.prefix.append_to(out, time_);
  out->append(line).push_back('\n');
}

void LogWriter::filter(std::string_view line) {
  const bool wanted = std::any_of(plan_.filters.begin(), plan_.filters.end(),
                                  [&](const std::string& word) { return line.find(word) != line.npos; });
  if (!wanted) return;
  std::string text;
  append_line(&text, line);
  plan_.filtered->write(std::move(text));
}

void LogWriter::show() {
  if (!shown_.empty()) console_.write(stream_, shown_);
  shown_.clear();
}

// From here on the console gets the output, even if the user asked for files only: nothing is to be lost.
void LogWriter::file_failed(const Status& status) {
  console_.notice(status.message() + "; this worker's output goes to the console only from here on");
  plan_.console = true;
}

// The rest of a line that is still being written is shown with the line.
void LogWriter::show_unwritten(std::string_view text) {
  std::string lines;
  for (std::size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1))
    append_line(&lines, text.substr(0, end));
  if (!lines.empty()) console_.write(stream_, lines);
}

}  // namespace dtrun::agent
