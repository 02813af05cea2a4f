// Where one stream of one worker goes: raw to its log file, as prefixed whole lines to the console, and its
// last lines to the failure report.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "agent/console.h"
#include "agent/descriptor.h"
#include "agent/lines.h"
#include "proto/status.h"

namespace dtrun::agent {

// The directory of a worker's logs; empty if `log_dir` is.
std::filesystem::path worker_log_dir(const std::filesystem::path& log_dir, const std::string& run_id,
                                     std::int64_t generation, int rank);

// `run_id` as one path component.
std::string run_folder(const std::string& run_id);

class LogWriter {
 public:
  // `file` may be empty: console only. Appends to a file that exists.
  LogWriter(Console& console, Console::Stream stream, std::string prefix, const std::filesystem::path& file);

  void push(std::string_view bytes);
  // End of the stream: a last line without a newline is shown too.
  void finish();

  std::vector<std::string> tail() const { return tail_.lines(); }

 private:
  void write_file(std::string_view bytes);
  void take_line(std::string_view line);
  void show();

  Console& console_;
  const Console::Stream stream_;
  const std::string prefix_;
  const std::string file_name_;
  Descriptor file_;
  LineCutter cutter_;
  Tail tail_;
  std::string shown_;  // lines of one push, written at once
};

}  // namespace dtrun::agent
