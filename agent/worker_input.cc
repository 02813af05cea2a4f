#include "agent/worker_input.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace dtrun::agent {

WorkerInput::WorkerInput(Loop& loop, int pipe, std::function<void(std::size_t)> taken)
    : loop_(loop), pipe_(pipe), taken_(std::move(taken)) {
  fcntl(pipe, F_SETFL, fcntl(pipe, F_GETFL) | O_NONBLOCK);
}

void WorkerInput::add(std::string_view text) {
  if (ends_) return;
  queue_.append(text);
  write_some();
}

void WorkerInput::end() {
  ends_ = true;
  write_some();
}

void WorkerInput::write_some() {
  while (pipe_.open() && !queue_.empty()) {
    const ssize_t n = write(pipe_.get(), queue_.data(), queue_.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) return close();
    if (n < 0) break;
    queue_.erase(0, static_cast<std::size_t>(n));
    taken_(static_cast<std::size_t>(n));
  }
  if (ends_ && queue_.empty()) return close();
  const bool want = pipe_.open() && !queue_.empty();
  if (want && !watched_) loop_.watch(pipe_.get(), EPOLLOUT, [this](std::uint32_t) { write_some(); });
  if (!want && watched_) loop_.forget(pipe_.get());
  watched_ = want;
}

void WorkerInput::close() {
  if (std::exchange(watched_, false)) loop_.forget(pipe_.get());
  pipe_.reset();
  queue_.clear();
}

}  // namespace dtrun::agent
