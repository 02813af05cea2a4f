#include "agent/launcher_line.h"

#include <fcntl.h>
#include <signal.h>

#include <utility>

namespace dtrun::agent {

LauncherLine::LauncherLine(Loop& loop, int fd, std::chrono::milliseconds silence, Events events)
    : loop_(loop), fd_(fd), silence_(silence), events_(std::move(events)) {
  fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
  loop_.watch(fd_, EPOLLIN, [this](std::uint32_t) { read_some(); });
  await_word();
}

LauncherLine::~LauncherLine() {
  if (fd_ >= 0) loop_.forget(fd_);
}

void LauncherLine::read_some() {
  const Portion portion = messages_.read_from(fd_);
  if (portion == Portion::kNoneYet) return;
  if (portion == Portion::kEnd) return lose();
  while (fd_ >= 0) {
    const auto message = messages_.next();
    if (!message.ok()) return lose();
    if (!message.value()) return await_word();
    take(*message.value());
  }
}

void LauncherLine::take(const launch::ToHost& message) {
  if (message.has_signal()) events_.told(message.signal().number());
  if (message.has_alive()) events_.alive();
  if (message.has_input()) events_.input(message.input().text());
  if (message.has_shown()) events_.shown(message.shown().bytes());
}

void LauncherLine::await_word() {
  timer_.set(Loop::Clock::now() + silence_, [this] { lose(); });
}

// The descriptor stays open: it is not ours.
void LauncherLine::lose() {
  loop_.forget(std::exchange(fd_, -1));
  timer_.cancel();
  events_.told(SIGTERM);
}

}  // namespace dtrun::agent
