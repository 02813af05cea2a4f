#include "cmd/launch/input_feed.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "agent/worker_input.h"

namespace dtrun::cmd {

InputFeed::InputFeed(agent::Loop& loop, int fd, std::function<void(std::string)> send)
    : loop_(loop), fd_(fd), send_(std::move(send)), room_(agent::kInputWindow) {
  ended_ = isatty(fd_) == 1;
  if (ended_)
    send_("");
  else
    go_on();
}

void InputFeed::taken(std::size_t bytes) {
  room_ = std::min(room_ + bytes, agent::kInputWindow);
  go_on();
}

// A file, which no loop can watch, is read at once.
void InputFeed::go_on() {
  if (ended_ || watched_ || room_ == 0) return;
  watched_ = loop_.watch(fd_, EPOLLIN, [this](std::uint32_t) { read_some(); });
  while (!watched_ && !ended_ && room_ > 0) read_some();
}

void InputFeed::read_some() {
  std::string text(std::min<std::size_t>(room_, 65536), '\0');
  const ssize_t n = read(fd_, text.data(), text.size());
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  room_ -= text.size();
  ended_ = text.empty();
  if (ended_ || room_ == 0) pause();
  send_(std::move(text));
}

// A pipe's end would wake the loop again and again.
void InputFeed::pause() {
  if (std::exchange(watched_, false)) loop_.forget(fd_);
}

}  // namespace dtrun::cmd
