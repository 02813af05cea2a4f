// The messages of a detached job, kept in a file on each host: those that its launcher would have got
// (proto/launch.proto), up to Ended. The agent holds a lock on the file as long as it lives, so a reader
// knows whether more may come, and which process to signal.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "proto/base/descriptor.h"
#include "proto/base/framed_channel.h"
#include "proto/core/status.h"
#include "proto/launch.pb.h"

namespace dtrun::cmd {

// $XDG_STATE_HOME/dtrun or ~/.local/state/dtrun; empty if neither is set.
std::filesystem::path state_folder();

// 0700, and ours. EX_CANTCREAT on failure.
Status make_private_folder(const std::filesystem::path& folder);

struct SpoolPlace {
  std::filesystem::path file;   // the messages
  std::filesystem::path words;  // the agent's own standard error
};

// The place for the run's host number `node`. Several hosts may share a home, or be one machine.
SpoolPlace spool_place(const std::string& run_id, int node);

// Makes the folder, removes the files of runs that ended long ago, and refuses if the run goes on here.
Status make_spool_folder(const SpoolPlace& place);

// The agent's end.
class SpoolWriter {
 public:
  // An empty file, locked by this process. EX_CANTCREAT if it cannot be made, or if another agent has locked
  // it.
  static Result<SpoolWriter> open(const SpoolPlace& place);

  int fd() const { return fd_.get(); }
  // The last message. On a full disk the messages before it give way, and a message tells their loss.
  void finish(const launch::FromHost& ended);

 private:
  explicit SpoolWriter(Descriptor fd) : fd_(std::move(fd)) {}

  Descriptor fd_;
};

class SpoolReader {
 public:
  // EX_NOINPUT if there is none.
  static Result<SpoolReader> open(const SpoolPlace& place);

  // The next message; nothing if none is whole yet.
  std::optional<launch::FromHost> next();
  // The message at the end of a job that is over, wherever next() was: on a full disk finish() goes back.
  std::optional<launch::FromHost> ended();
  // Bytes up to the end of the last message that next() returned.
  std::uint64_t position() const { return position_; }
  std::uint64_t size() const;

  // The agent that writes it; nothing if none does any more.
  std::optional<pid_t> writer() const;
  // Signals the agent, and no other process.
  bool signal_writer(int number) const;

 private:
  explicit SpoolReader(Descriptor fd) : fd_(std::move(fd)) {}
  void start_at(std::uint64_t position);

  Descriptor fd_;
  MessageReader<launch::FromHost> messages_;
  std::uint64_t read_ = 0, position_ = 0;
};

}  // namespace dtrun::cmd
