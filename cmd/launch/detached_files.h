// What a detached job leaves on each host, in a folder of its own: output.log, which its agent and workers
// write, and its exit code. The agent holds a lock on the latter's file as long as it lives, so a reader
// knows whether more may come, and which process to signal.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "proto/base/descriptor.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

// $XDG_STATE_HOME/dtrun or ~/.local/state/dtrun; empty if neither is set.
std::filesystem::path state_folder();

// 0700, and ours. EX_CANTCREAT on failure.
Status make_private_folder(const std::filesystem::path& folder);

// The folder of the run's host number `node`. Several hosts may share a home, or be one machine.
std::filesystem::path detached_folder(const std::string& run_id, int node);

// Makes it, removes those of runs that ended long ago, and refuses if the run goes on here.
Status make_detached_folder(const std::filesystem::path& folder);

// The agent's end.
class DetachedWriter {
 public:
  // Begins both files anew, and locks them for this process. EX_CANTCREAT if one cannot be made, or if
  // another agent has locked them.
  static Result<DetachedWriter> open(const std::filesystem::path& folder);

  int output() const { return output_.get(); }
  // A last line of the output, and the exit code, which has a place on a full disk too.
  void finish(int exit_code);

 private:
  DetachedWriter(Descriptor output, Descriptor exit_code)
      : output_(std::move(output)), exit_code_(std::move(exit_code)) {}

  Descriptor output_, exit_code_;
};

class DetachedReader {
 public:
  // EX_NOINPUT if there is no such run.
  static Result<DetachedReader> open(const std::filesystem::path& folder);

  // What was written behind what this has returned before, at most kPortion bytes of it.
  std::string next();
  static constexpr std::size_t kPortion = 256u << 10;
  // Passes over what there is.
  void skip();

  struct End {
    int exit_code = 0;
    bool is_cut = false;  // there was no room for all of the output
  };
  // Nothing if the agent has not come to its end.
  std::optional<End> end() const;

  // The agent that writes; nothing if none does any more.
  std::optional<pid_t> writer() const;
  // Signals the agent, and no other process.
  void signal_writer(int number) const;

 private:
  DetachedReader(Descriptor output, Descriptor exit_code)
      : output_(std::move(output)), exit_code_(std::move(exit_code)) {}

  Descriptor output_, exit_code_;
  std::uint64_t read_ = 0;
};

}  // namespace dtrun::cmd
