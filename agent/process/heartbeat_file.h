// The file by which a program that does not use its control socket gives signs of life
// ($DTRUN_HEARTBEAT_FILE): any touch is one. JSON in it is a report of progress too, {"step": 12, "total":
// 900, "loss": 2.1} (docs/hangs.md). The program may write in place or rename: what is half written is read
// again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "proto/core/status.h"
#include "proto/core/training.h"
#include "proto/training.pb.h"

namespace dtrun::agent {

// The content of such a file.
struct HeartbeatReport {
  training::Progress progress;
  // Seconds since the program began: it waited for other workers, and for data. None: it does not say.
  std::optional<double> waited = {}, waited_for_data = {};
};

// Nothing if `text` is no JSON object: the file was only touched. EX_SOFTWARE says what in the object is no
// report.
Result<std::optional<HeartbeatReport>> heartbeat_report_in(const std::string& text);

// Makes StepTimes of one worker's reports, each with the time at which it was written: time that was not
// waited is math. Goes on where a program begins anew. Pure.
class ReportedTimes {
 public:
  // Nothing before two reports that tell of waits.
  std::optional<StepTimes> add(const HeartbeatReport& report, double seconds);

 private:
  struct TimedReport {
    std::int64_t step = 0;
    double seconds = 0, waited = 0, data = 0;
  };
  std::optional<TimedReport> newest_;
  StepTimes times_;
};

class HeartbeatFile {
 public:
  // Larger files are touches only.
  static constexpr std::size_t kLargest = 65536;

  // The program is about to start. `path` may exist; empty: there is none.
  explicit HeartbeatFile(std::filesystem::path path);

  // Changes with every touch; nothing before the first one.
  std::optional<std::uint64_t> touches() const;
  // The report that was written since the last look, if any.
  std::optional<training::Progress> look();
  // Once, after a look at an object that is no report: what is wrong.
  std::string take_fault();

 private:
  std::filesystem::path path_;
  std::uint64_t first_, read_;  // marks of the file before the start, and when it was read last
  ReportedTimes times_;
  std::uint64_t broken_ = 0;  // mark of a file that was no report when it was read
  std::string fault_;
  bool told_ = false;
};

}  // namespace dtrun::agent
