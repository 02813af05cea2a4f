// Sends one stream of one worker to its places: as it is to its log file, as whole lines with a prefix to the
// console, lines that match to a file of all ranks, and the last lines to the failure report.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/output/console.h"
#include "agent/output/queued_log.h"
#include "agent/text/line_prefix.h"
#include "agent/text/lines.h"

namespace dtrun::agent {

// The directory of a worker's logs; empty if `log_dir` is.
std::filesystem::path worker_log_dir(const std::filesystem::path& log_dir, const std::string& run_id,
                                     std::int64_t generation, int rank);

// `run_id` as one path component.
std::string run_folder(const std::string& run_id);

struct StreamPlan {
  bool console = true;
  LinePrefix prefix;
  // A console that is no terminal gets the bytes as they are: nothing stands before a line, and no other
  // worker's lines must be kept apart.
  bool verbatim = false;
  bool timestamps = false;              // before each line, on the console and in files
  std::shared_ptr<QueuedLog> file;      // its own; null: none
  std::vector<std::string> filters;     // a line with one of them goes to `filtered` too
  std::shared_ptr<QueuedLog> filtered;  // null: none
};

class LogWriter {
 public:
  // `written`: queued() has shrunk.
  LogWriter(Console& console, Console::Stream stream, StreamPlan plan, std::function<void()> written);
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;

  void push(std::string_view bytes);
  // End of the stream: a last line without a newline is shown too.
  void finish();

  void set_prefix(const LinePrefix& prefix) { plan_.prefix = prefix; }

  // Those that have ended, and pieces of long ones.
  std::uint64_t lines() const { return lines_; }
  // True while a line has begun that a console without a terminal does not show before it ends; show_rest()
  // shows it up to now, and the rest of it comes as a line of its own.
  bool unshown() const;
  void show_rest();

  // Bytes that its own file has not taken yet.
  std::size_t queued() const { return plan_.file ? plan_.file->queued() : 0; }

  std::string_view last_line() const { return tail_.last(); }
  std::vector<std::string> tail() const { return tail_.lines(); }

 private:
  bool verbatim() const;
  void note_time();
  void write_file(std::string_view bytes);
  std::string_view stamped(std::string_view bytes);
  void take_line(std::string_view line);
  void append_line(std::string* out, std::string_view line) const;
  void filter(std::string_view line);
  void show();
  void show_unfinished();
  void file_failed(const Status& status);
  void show_unwritten(std::string_view text);

  Console& console_;
  const Console::Stream stream_;
  StreamPlan plan_;
  LineCutter cutter_;
  Tail tail_;
  std::string time_;   // of the last read, if anything shows it
  std::string shown_;  // lines of one push, written at once
  std::string stamped_;
  bool at_line_start_ = true;  // in the file
  std::uint64_t lines_ = 0;
  std::size_t rest_shown_ = 0;  // bytes of the unfinished line that show_rest() has shown
};

}  // namespace dtrun::agent
