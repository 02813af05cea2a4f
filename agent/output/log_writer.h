// Sends one stream of one worker to its places: as it is to its log file, as whole lines with a prefix to the
// console, lines that match to a file of all ranks, and the last lines to the failure report.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/output/console.h"
#include "agent/output/log_file.h"
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
  bool timestamps = false;     // before each line, on the console and in files
  std::filesystem::path file;  // empty: none
  std::uint64_t max_file_size = 0;
  std::vector<std::string> filters;   // a line with one of them goes to `filtered` too
  std::shared_ptr<LogFile> filtered;  // null: none
};

class LogWriter {
 public:
  LogWriter(Console& console, Console::Stream stream, StreamPlan plan);

  void push(std::string_view bytes);
  // End of the stream: a last line without a newline is shown too.
  void finish();

  void set_prefix(const LinePrefix& prefix) { plan_.prefix = prefix; }

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

  Console& console_;
  const Console::Stream stream_;
  StreamPlan plan_;
  LogFile file_;
  LineCutter cutter_;
  Tail tail_;
  std::string time_;   // of the last read, if anything shows it
  std::string shown_;  // lines of one push, written at once
  std::string stamped_;
  bool at_line_start_ = true;  // in the file
};

}  // namespace dtrun::agent
