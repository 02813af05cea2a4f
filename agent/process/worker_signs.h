// What a worker says of its progress: by its control socket, or by the time and the content of its heartbeat
// file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "agent/core/vocabulary.h"
#include "agent/process/heartbeat_file.h"

namespace dtrun::agent {

class WorkerSigns {
 public:
  // `program`: no built-in trainer, which need not say anything.
  explicit WorkerSigns(bool program) : program_(program) {}

  // The worker is about to start. `file`: as HeartbeatFile's.
  void start(std::filesystem::path file) { file_.emplace(std::move(file)); }
  void begin_generation() {
    report_ = {};
    collectives_.reset();
  }

  // A number that changes with each sign of progress; nothing while a worker that need not give any has given
  // none. `connected`: its control socket is open.
  std::optional<std::uint64_t> heartbeat(bool connected) const {
    if (!program_) return pulse_;
    const std::optional<std::uint64_t> touches = file_ ? file_->touches() : std::nullopt;
    return touches || (reports_ && connected) ? std::optional(touches.value_or(0) + pulse_) : std::nullopt;
  }
  // A report over the control socket: that of a program without a pulse is a sign of progress by itself.
  void set_pulse(std::uint64_t pulse) {
    reports_ = true;
    pulse_ = pulse == 0 && program_ ? pulse_ + 1 : pulse;
  }
  // The report of progress that it has written to its heartbeat file since the last look, if any.
  std::optional<training::Progress> look_at_file() { return file_ ? file_->look() : std::nullopt; }
  // HeartbeatFile::take_fault().
  std::string take_fault() { return file_ ? file_->take_fault() : std::string(); }

  // Those of its generation that it has begun, as it said last; nothing if it does not count them.
  std::optional<std::uint64_t> collectives() const { return collectives_; }
  void set_collectives(std::optional<std::uint64_t> begun) { collectives_ = begun; }
  // As it said last in its generation.
  const WorkerReport& report() const { return report_; }
  void set_report(WorkerReport report) { report_ = std::move(report); }

 private:
  const bool program_;
  std::uint64_t pulse_ = 0;
  bool reports_ = false;               // over the control socket
  std::optional<HeartbeatFile> file_;  // once it was started
  std::optional<std::uint64_t> collectives_;
  WorkerReport report_;
};

}  // namespace dtrun::agent
