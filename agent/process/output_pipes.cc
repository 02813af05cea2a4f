#include "agent/process/output_pipes.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace dtrun::agent {
namespace {

// How much of one worker's output may wait for its log files before its pipes stay unread, and how little
// before they are read again.
constexpr std::size_t kMostQueued = 4u << 20, kFewQueued = 1u << 20;
// The most that a pipe can hold for a user without privileges.
constexpr std::uint64_t kMostInPipe = 1u << 20;

// A prompt, or a progress bar that is drawn over itself (tqdm), is shown on a console without a terminal
// before its line ends: once the line is so old, and at most that often.
constexpr auto kRest = std::chrono::milliseconds(1500), kBetweenRests = std::chrono::milliseconds(5000);

bool readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, 0) > 0;
}

}  // namespace

OutputPipes::OutputPipes(Loop& loop, Console& console, StreamPlan out, StreamPlan err,
                         std::function<void()> closed)
    : loop_(loop),
      out_{{}, LogWriter(console, Console::Stream::kOut, std::move(out), [this] { balance(); })},
      err_{{}, LogWriter(console, Console::Stream::kErr, std::move(err), [this] { balance(); })},
      closed_(std::move(closed)) {}

OutputPipes::~OutputPipes() {
  for (Stream* stream : {&out_, &err_}) unwatch(*stream);
}

bool OutputPipes::open(int* child_out, int* child_err) {
  last_at_ = Loop::Clock::now();
  for (const auto& [stream, child] : {std::pair{&out_, child_out}, {&err_, child_err}}) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    stream->pipe.reset(ends[0]);
    *child = ends[1];
  }
  return true;
}

void OutputPipes::read() {
  for (Stream* stream : {&out_, &err_}) watch(*stream);
}

void OutputPipes::pause(bool paused) {
  paused_ = paused;
  rewatch();
}

void OutputPipes::show_rest_later() {
  if (rest_timer_.is_set() || (!out_.writer.unshown() && !err_.writer.unshown())) return;
  rest_timer_.set(std::max(Loop::Clock::now() + kRest, rest_at_ + kBetweenRests), [this] { show_rest(); });
}

// A line whose next bytes have come already, unread, is not one that waits for its end.
void OutputPipes::show_rest() {
  const auto now = Loop::Clock::now();
  for (Stream* stream : {&out_, &err_}) {
    const bool waits = stream->watched && now - stream->line_at >= kRest && !readable(stream->pipe.get());
    if (!stream->writer.unshown() || !waits) continue;
    stream->writer.show_rest();
    rest_at_ = now;
  }
  show_rest_later();
}

void OutputPipes::balance() {
  const std::size_t queued = out_.writer.queued() + err_.writer.queued();
  const bool behind = queued > (behind_ ? kFewQueued : kMostQueued);
  if (behind == behind_) return;
  behind_ = behind;
  rewatch();
}

void OutputPipes::rewatch() {
  for (Stream* stream : {&out_, &err_}) {
    if (paused()) {
      unwatch(*stream);
    } else if (stream->pipe.open()) {
      watch(*stream);
    }
  }
}

void OutputPipes::close() {
  for (Stream* stream : {&out_, &err_})
    if (stream->pipe.open()) finish(*stream);
}

void OutputPipes::set_prefix(const LinePrefix& prefix) {
  out_.writer.set_prefix(prefix);
  err_.writer.set_prefix(prefix);
}

void OutputPipes::watch(Stream& stream) {
  if (paused() || stream.watched) return;
  stream.watched =
      loop_.watch(stream.pipe.get(), EPOLLIN, [this, &stream](std::uint32_t) { read_from(stream); });
}

void OutputPipes::unwatch(Stream& stream) {
  if (stream.watched) loop_.forget(stream.pipe.get());
  stream.watched = false;
}

void OutputPipes::read_from(Stream& stream) {
  char chunk[65536];
  const ssize_t n = ::read(stream.pipe.get(), chunk, sizeof chunk);
  if (n > 0) {
    bytes_ += static_cast<std::uint64_t>(n);
    last_at_ = Loop::Clock::now();
    last_ = &stream;
    const std::uint64_t lines = stream.writer.lines();
    const bool begins = !stream.writer.unshown();
    stream.writer.push({chunk, static_cast<std::size_t>(n)});
    if (begins || stream.writer.lines() != lines) stream.line_at = last_at_;
    show_rest_later();
    return balance();
  }
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  finish(stream);
  if (!is_open()) closed_();
}

// A process that outlives the worker may write on and on.
void OutputPipes::drain() {
  for (Stream* stream : {&out_, &err_}) {
    const std::uint64_t before = bytes_;
    while (stream->pipe.open() && bytes_ - before < kMostInPipe && readable(stream->pipe.get()))
      read_from(*stream);
  }
}

void OutputPipes::finish(Stream& stream) {
  unwatch(stream);
  stream.pipe.reset();
  stream.writer.finish();
}

}  // namespace dtrun::agent
