#include "agent/process/output_pipes.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace dtrun::agent {

OutputPipes::OutputPipes(Loop& loop, Console& console, StreamPlan out, StreamPlan err,
                         std::function<void()> closed)
    : loop_(loop),
      out_{{}, LogWriter(console, Console::Stream::kOut, std::move(out))},
      err_{{}, LogWriter(console, Console::Stream::kErr, std::move(err))},
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
  for (Stream* stream : {&out_, &err_}) {
    if (paused) {
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
  if (paused_ || stream.watched) return;
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
    return stream.writer.push({chunk, static_cast<std::size_t>(n)});
  }
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  finish(stream);
  if (!is_open()) closed_();
}

void OutputPipes::finish(Stream& stream) {
  unwatch(stream);
  stream.pipe.reset();
  stream.writer.finish();
}

}  // namespace dtrun::agent
