// The agent's end of the line to a launcher on another host (proto/launch.proto), while the job runs.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "agent/system/loop.h"
#include "proto/base/framed_channel.h"
#include "proto/launch.pb.h"

namespace dtrun::agent {

class LauncherLine {
 public:
  // `told(number)` on the loop for each signal that the launcher passes on, and with SIGTERM when the
  // launcher is gone: at the end of the stream, or after `silence`. `alive` for each sign of life.
  // `input` for each piece of its standard input; an empty one is the end. `shown` as RemoteConsole's.
  struct Events {
    std::function<void(int number)> told;
    std::function<void()> alive;
    std::function<void(const std::string& text)> input;
    std::function<void(std::size_t bytes)> shown;
  };
  LauncherLine(Loop& loop, int fd, std::chrono::milliseconds silence, Events events);
  ~LauncherLine();
  LauncherLine(const LauncherLine&) = delete;

 private:
  void read_some();
  void take(const launch::ToHost& message);
  void await_word();
  void lose();

  Loop& loop_;
  int fd_;
  const std::chrono::milliseconds silence_;
  Events events_;
  MessageReader<launch::ToHost> messages_;
  Timer timer_{loop_};
};

}  // namespace dtrun::agent
