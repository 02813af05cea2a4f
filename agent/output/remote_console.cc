#include "agent/output/remote_console.h"

#include <algorithm>
#include <utility>

#include "agent/text/terminal_line.h"
#include "proto/base/framed_channel.h"

namespace dtrun::agent {
namespace {

constexpr std::size_t kLongestOutput = 1u << 20;  // in one frame

}  // namespace

RemoteConsole::RemoteConsole(Loop& loop, Disk& disk, const RemoteTerminal& terminal,
                             std::function<void(bool)> congestion)
    : Console(Palette(terminal.colour)),
      terminal_(terminal),
      congestion_(std::move(congestion)),
      out_(
          loop, disk, terminal.out_fd, [] {}, [](int) {}) {}

void RemoteConsole::send(const launch::FromHost& message) { out_.push(frame_of(message)); }

void RemoteConsole::write(Stream stream, std::string_view text) {
  for (; !text.empty(); text.remove_prefix(std::min(text.size(), kLongestOutput))) {
    launch::FromHost message;
    message.mutable_output()->set_to_stderr(stream == Stream::kErr);
    message.mutable_output()->set_text(std::string(text.substr(0, kLongestOutput)));
    send(message);
    unshown_ += message.output().text().size();
  }
  congestion_.update(unshown_);
}

void RemoteConsole::shown(std::size_t bytes) {
  unshown_ -= std::min(unshown_, bytes);
  congestion_.update(unshown_);
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
