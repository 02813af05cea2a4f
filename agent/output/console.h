// Where workers' lines, notices and the progress bar below them go: the agent's own standard output and error
// (terminal_console.h), or its launcher's on another host (remote_console.h). Never blocks the loop: text
// that a slow reader does not take is queued, and the workers' pipes are left unread while the queue is long,
// so that memory stays bounded and no line is lost.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "proto/core/colour.h"

namespace dtrun::agent {

class Console {
 public:
  enum class Stream { kOut, kErr };

  explicit Console(Palette palette) : palette_(palette) {}
  virtual ~Console() = default;
  Console(const Console&) = delete;

  // `text` is whole lines with their newlines; any bytes if the stream is no terminal and has one writer.
  virtual void write(Stream stream, std::string_view text) = 0;
  // "dtrun: text" on standard error, on a line of its own.
  void notice(const std::string& text) { say(palette_.message(text)); }
  void error(const std::string& text) { say(palette_.error(text)); }
  virtual void say(const std::string& text) = 0;  // the same in the caller's colours
  // A notice on the whole job: if several agents send it to one launcher, the launcher shows it once.
  virtual void tell_job(const std::string& text) { say(text); }
  const Palette& palette() const { return palette_; }  // of standard error

  // A line that stays below everything else; empty: none. Only on a terminal.
  virtual void set_bar(const std::string& bar) = 0;
  // Shows the line that `owner` has begun and not ended (a progress bar, a prompt) where the bar would be,
  // while there is no bar; empty: the line has ended. If several owners have one, one is shown.
  virtual void set_unfinished(const void* owner, std::string_view line) = 0;
  virtual bool has_terminal() const = 0;  // that shows a bar
  virtual bool is_terminal(Stream stream) const = 0;
  virtual int columns() const = 0;

  virtual std::size_t queued() const = 0;  // bytes, which the loop writes
  // Throws away the queue and all later text, as there is no reader.
  virtual void drop() = 0;

 private:
  const Palette palette_;
};

}  // namespace dtrun::agent
