// One program that carries a connection to another host: ssh, or the command of --ssh. Runs on the launcher's
// loop.
#pragma once

#include <sys/types.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/system/loop.h"
#include "proto/base/descriptor.h"
#include "proto/base/framed_channel.h"
#include "proto/core/status.h"
#include "proto/launch.pb.h"

namespace dtrun::cmd {

// Bytes that shells may print on standard output before the agent's preamble.
inline constexpr std::size_t kMostBabble = 1u << 20;

class RemoteShell {
 public:
  struct Events {
    std::function<void(launch::FromHost message)> said;
    // A line on its standard error, once the agent runs; before that it is kept for standard_error().
    std::function<void(std::string_view line)> complained;
    // The process has ended, or sent something that is no message; `exit_status` as in a shell. The last
    // event, once.
    std::function<void(int exit_status)> ended;
    // Its standard output before the agent's preamble, as it comes: at most kMostBabble, else the process is
    // ended.
    std::function<void(std::string_view bytes)> babbled;
  };

  // The process gets SIGKILL when this one ends. It has no terminal, so a question of it is not answered.
  static Result<std::unique_ptr<RemoteShell>> start(agent::Loop& loop, const std::vector<std::string>& argv,
                                                    Events events);
  ~RemoteShell() { abandon(); }
  RemoteShell(const RemoteShell&) = delete;

  // Kills the process; no event comes any more. May be called by one, unlike the destructor.
  void abandon();

  void send(const launch::ToHost& message);
  void send_bytes(std::shared_ptr<const std::string> bytes);
  // Writes the queue, then the far end finds the end of the stream.
  void finish_input();

  // Ends it: `why` it is not listened to any more.
  void break_off(const std::string& why);

  // The beginning of its standard error before the agent ran.
  const std::string& standard_error() const { return standard_error_; }
  const std::string& first_line() const { return first_line_; }  // of its output before the agent ran
  bool greeted() const { return greeted_; }
  // True if nothing came from it for `time`.
  bool silent_for(std::chrono::milliseconds time) const {
    return agent::Loop::Clock::now() - heard_at_ >= time;
  }

 private:
  RemoteShell(agent::Loop& loop, Events events) : loop_(loop), events_(std::move(events)) {}

  Status spawn(const std::vector<std::string>& argv);
  void write_some();
  bool read_out();
  void take(std::string_view bytes);
  void babble(std::string_view bytes);
  void take_messages();
  bool read_err();
  void complain(std::string_view text);
  void close_out();
  void close_err();
  void reap();

  agent::Loop& loop_;
  Events events_;
  pid_t pid_ = -1;
  Descriptor in_, out_, err_, process_;  // our ends, and its pidfd
  std::deque<std::shared_ptr<const std::string>> queue_;
  std::size_t written_ = 0;  // of the first of them
  bool writing_ = false, input_ends_ = false;
  bool greeted_ = false;
  std::string before_;  // the last bytes before the preamble, which may begin in them
  std::size_t babbled_ = 0;
  std::string first_line_;  // the beginning of these bytes
  bool first_line_ends_ = false;
  MessageReader<launch::FromHost> messages_;
  std::string standard_error_, line_;
  std::optional<int> exit_status_;
  agent::Loop::Clock::time_point heard_at_ = agent::Loop::Clock::now();
};

}  // namespace dtrun::cmd
