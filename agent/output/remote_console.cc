#include "agent/output/remote_console.h"

#include <algorithm>
#include <utility>

#include "agent/text/terminal_line.h"
#include "proto/base/clock.h"
#include "proto/base/framed_channel.h"

namespace dtrun::agent {
namespace {

constexpr std::size_t kLongestOutput = 1u << 20;  // in one frame

}  // namespace

RemoteConsole::RemoteConsole(Loop& loop, const RemoteTerminal& terminal, std::function<void(bool)> congestion)
    : Console(Palette(terminal.colour)),
      terminal_(terminal),
      congestion_(std::move(congestion)),
      out_(
          loop, terminal.out_fd, [this] { congestion_.update(out_.queued()); }, [](int) {}) {}

void RemoteConsole::send(const launch::FromHost& message) {
  if (terminal_.in_fd >= 0) return out_.push(frame_of(message));
  launch::FromHost timed = message;  // a detached job's file: its reader merges it with those of other hosts
  timed.set_time(wall_seconds());
  out_.push(frame_of(timed));
}

void RemoteConsole::write(Stream stream, std::string_view text) {
  if (!has_room_for(text.size())) return;
  for (; !text.empty(); text.remove_prefix(std::min(text.size(), kLongestOutput))) {
    launch::FromHost message;
    message.mutable_output()->set_to_stderr(stream == Stream::kErr);
    message.mutable_output()->set_text(std::string(text.substr(0, kLongestOutput)));
    send(message);
  }
}

// Tells once that there is no more room. dtrun's own lines go on: they are few, and tell how the job ends.
bool RemoteConsole::has_room_for(std::size_t output) {
  if (full_ || terminal_.most_output == 0) return !full_;
  passed_on_ += output;
  full_ = passed_on_ > terminal_.most_output;
  if (full_)
    notice("the workers have said " + std::to_string(terminal_.most_output >> 20) +
           " MiB here, what they say from now on is not kept; --log_dir keeps all of it");
  return !full_;
}

void RemoteConsole::say(const std::string& text, bool of_job) {
  launch::FromHost message;
  message.mutable_said()->set_text(text);
  message.mutable_said()->set_of_job(of_job);
  send(message);
}

void RemoteConsole::set_bar(const std::string& bar) {
  if (!has_terminal()) return;
  const std::string text = fitting(bar, columns() - 1);
  if (text == bar_) return;
  bar_ = text;
  launch::FromHost message;
  message.mutable_bar()->set_text(bar_);
  send(message);
}

}  // namespace dtrun::agent
