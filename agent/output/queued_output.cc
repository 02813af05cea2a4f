#include "agent/output/queued_output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace dtrun::agent {
namespace {

constexpr std::size_t kCongested = 1u << 20;
constexpr std::size_t kDrained = 64u << 10;

bool writable(int fd) {
  pollfd entry{fd, POLLOUT, 0};
  return poll(&entry, 1, 0) > 0;
}

// How much to write at once: a pipe with POLLOUT takes PIPE_BUF bytes without blocking, and takes them whole,
// so that lines of several agents on one pipe do not mix.
std::size_t portion(std::string_view text) {
  if (text.size() <= PIPE_BUF) return text.size();
  const std::size_t newline = text.rfind('\n', PIPE_BUF - 1);
  return newline == std::string_view::npos ? PIPE_BUF : newline + 1;
}

}  // namespace

QueuedOutput::QueuedOutput(Loop& loop, Disk& disk, int fd, std::function<void()> changed,
                           std::function<void(int)> broken)
    : loop_(loop),
      disk_(disk),
      fd_(fd),
      changed_(std::move(changed)),
      broken_(std::move(broken)),
      terminal_(isatty(fd) == 1) {
  struct stat info {};
  regular_ = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  if (terminal_) open_anew();
}

QueuedOutput::~QueuedOutput() {
  if (watched_) loop_.forget(fd_);
}

// A terminal takes fewer bytes than a pipe when it says that it can be written, and a stopped one (Ctrl-S)
// none for hours: a write that blocks would be taken for our death. The mode of the descriptor that we were
// given is also that of the shell's.
void QueuedOutput::open_anew() {
  const std::string path = "/proc/self/fd/" + std::to_string(fd_);
  own_.reset(open(path.c_str(), O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
  if (own_.open()) fd_ = own_.get();
}

void QueuedOutput::push(std::string_view text) {
  if (closed_) return;
  if (!text.empty()) mid_line_ = text.back() != '\n';
  if (regular_) return push_to_disk(std::string(text));
  queue_.append(text);
  pump();
}

// A disk that is full, or fails: the job goes on without our output.
void QueuedOutput::push_to_disk(std::string text) {
  const std::size_t bytes = text.size();
  on_disk_ += bytes;
  const auto error = std::make_shared<int>(0);
  disk_.post(
      [fd = fd_, text = std::move(text), dropped = dropped_, error] {
        for (std::string_view rest = text; !rest.empty() && !*dropped && *error == 0;) {
          const ssize_t n = ::write(fd, rest.data(), rest.size());
          if (n < 0 && errno != EINTR) *error = errno;
          rest.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(0, n)));
        }
        if (*error != 0) *dropped = true;
      },
      [this, bytes, error] {
        on_disk_ -= bytes;
        if (*error != 0 && !std::exchange(closed_, true)) broken_(*error);
        changed_();
      },
      bytes);
  changed_();
}

void QueuedOutput::drop() {
  if (queued() == 0) return;
  *dropped_ = closed_ = true;
  pump();
}

// Writes one portion; false if nothing more can be written now.
bool QueuedOutput::write_some() {
  if (!writable(fd_)) return false;
  const std::string_view rest = std::string_view(queue_).substr(written_);
  const ssize_t n = ::write(fd_, rest.data(), portion(rest));
  if (n < 0) {
    if (errno == EAGAIN || errno == EINTR) return false;
    closed_ = true;  // the reader is gone, or the disk full: the job goes on without our output
    broken_(errno);
    return false;
  }
  written_ += static_cast<std::size_t>(n);
  return true;
}

void QueuedOutput::pump() {
  while (written_ < queue_.size() && write_some()) {
  }
  if (closed_ || written_ == queue_.size()) {
    queue_.clear();
    written_ = 0;
  } else if (written_ > kCongested) {
    queue_.erase(0, written_);
    written_ = 0;
  }
  const bool want = !queue_.empty();
  if (want && !watched_) {
    watched_ = loop_.watch(fd_, EPOLLOUT, [this](std::uint32_t) { pump(); });
  } else if (!want && watched_) {
    loop_.forget(fd_);
    watched_ = false;
  }
  changed_();
}

void Congestion::update(std::size_t queued) {
  if (congested_ ? queued >= kDrained : queued <= kCongested) return;
  congested_ = !congested_;
  tell_(congested_);
}

}  // namespace dtrun::agent
