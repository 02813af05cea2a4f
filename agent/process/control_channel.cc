#include "agent/process/control_channel.h"

#include <sys/socket.h>

#include <cerrno>

#include "agent/process/control_json.h"
#include "proto/base/framed_channel.h"

namespace dtrun::agent {
namespace {

// A worker that takes nothing of what it asks for: its agent does not keep it all.
constexpr std::size_t kMaxQueued = 4 * kMaxFrame;

}  // namespace

ControlChannel::ControlChannel(Loop& loop, Descriptor socket, OnMessage on_message, OnError on_error)
    : loop_(loop),
      socket_(std::move(socket)),
      on_message_(std::move(on_message)),
      on_error_(std::move(on_error)) {
  loop_.watch(socket_.get(), EPOLLIN, [this](std::uint32_t events) { ready(events); });
}

void ControlChannel::send(const control::FromAgent& message) {
  if (!open() || !frames_.form()) return;
  out_ += *frames_.form() == FrameReader::Form::kLines ? to_json_line(message) : frame_of(message);
  write_some();
  if (out_.size() > kMaxQueued) fail("control protocol: the worker does not read its answers");
}

void ControlChannel::ready(std::uint32_t events) {
  if (events & EPOLLOUT) write_some();
  if (!socket_.open() || !(events & (EPOLLIN | EPOLLHUP | EPOLLERR))) return;
  if (broken_) return pass_over();
  const Portion portion = read_portion(socket_.get(), std::string::npos, &frames_);
  take_messages();
  if (portion == Portion::kEnd) close();
}

void ControlChannel::take_messages() {
  while (open()) {
    const auto message = next();
    if (!message.ok()) return fail(message.status().message());
    if (!message.value()) return;
    on_message_(*message.value());
  }
}

Result<std::optional<control::FromWorker>> ControlChannel::next() {
  ASSIGN_OR_RETURN(auto payload, frames_.next());
  if (!payload) return std::optional<control::FromWorker>();
  ASSIGN_OR_RETURN(auto message, *frames_.form() == FrameReader::Form::kLines
                                     ? from_json_line(*payload)
                                     : message_of<control::FromWorker>(*payload));
  return std::optional(std::move(message));
}

void ControlChannel::write_some() {
  while (!out_.empty()) {
    const ssize_t n = ::send(socket_.get(), out_.data(), out_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) {
      if (errno != EAGAIN && errno != EINTR) out_.clear();  // the worker is gone: reading finds out
      break;
    }
    out_.erase(0, static_cast<std::size_t>(n));
  }
  loop_.change(socket_.get(), out_.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

void ControlChannel::fail(const std::string& error) {
  broken_ = true;
  out_.clear();
  loop_.change(socket_.get(), EPOLLIN);
  on_error_(error);
}

void ControlChannel::pass_over() {
  char part[1 << 14];
  const ssize_t n = ::recv(socket_.get(), part, sizeof part, MSG_DONTWAIT);
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) close();
}

void ControlChannel::drain_and_close() {
  if (!open()) return close();
  while (read_portion(socket_.get(), std::string::npos, &frames_) == Portion::kBytes) {
  }
  take_messages();
  close();
}

void ControlChannel::close() {
  if (!socket_.open()) return;
  loop_.forget(socket_.get());
  socket_.reset();
}

}  // namespace dtrun::agent
