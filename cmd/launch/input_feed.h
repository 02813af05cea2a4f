// The launcher's standard input on its way to the first host, as fast as the workers there take it.
#pragma once

#include <functional>
#include <string>

#include "agent/system/loop.h"

namespace dtrun::cmd {

class InputFeed {
 public:
  // Reads `fd` (which stays open) and sends its bytes; an empty text is the end and comes last. A terminal is
  // not read: it is the shell's.
  InputFeed(agent::Loop& loop, int fd, std::function<void(std::string text)> send);
  ~InputFeed() { pause(); }
  InputFeed(const InputFeed&) = delete;

  // `bytes` have arrived with the workers; at most agent::kInputWindow are under way.
  void taken(std::size_t bytes);

 private:
  void go_on();
  void read_some();
  void pause();

  agent::Loop& loop_;
  const int fd_;
  std::function<void(std::string)> send_;
  std::size_t room_;
  bool watched_ = false, ended_ = false;
};

}  // namespace dtrun::cmd
