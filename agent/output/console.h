// The agent's own standard output and error, or its launcher's on another host: whole lines of workers,
// notices, and the progress bar below them. Never blocks the loop: text that a slow reader does not take is
// queued, and the workers' pipes are left unread while the queue is long, so that memory stays bounded and no
// line is lost.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "agent/core/job_spec.h"
#include "agent/system/descriptor.h"
#include "agent/system/loop.h"
#include "proto/launch.pb.h"

namespace dtrun::agent {

class Console {
 public:
  enum class Stream { kOut, kErr };

  // `congestion(true)` when the queue grows over its limit, `congestion(false)` when it has drained.
  Console(Loop& loop, const OutputSpec& spec, std::function<void(bool)> congestion);
  ~Console();

  // `text` is whole lines with their newlines; any bytes if the stream is no terminal and has one writer.
  void write(Stream stream, std::string_view text);
  // "dtrun: text" on standard error, on a line of its own.
  void notice(const std::string& text);
  void error(const std::string& text);
  void say(const std::string& text);  // the same in the caller's colours
  // A notice on the whole job: if several agents send it to one launcher, the launcher shows it once.
  void tell_job(const std::string& text);
  const Palette& palette() const { return palette_; }  // of standard error

  // To the launcher; without effect if there is none.
  void send(const launch::FromHost& message);

  // A line that stays below everything else; empty: none. Only on a terminal.
  void set_bar(const std::string& bar);
  // Shows the line that `owner` has begun and not ended (a progress bar, a prompt) where the bar would be,
  // while there is no bar; empty: the line has ended. If several owners have one, one is shown.
  void set_unfinished(const void* owner, std::string_view line);
  bool has_terminal() const { return remote_ ? remote_->bar : err_.terminal; }
  bool is_terminal(Stream stream) const { return stream == Stream::kOut ? out_.terminal : err_.terminal; }
  int columns() const;

  // True if text is queued; the loop writes it.
  bool pending() const { return !out_.queue.empty() || !err_.queue.empty(); }
  // Throws away the queue and all later text, as there is no reader.
  void drop();

 private:
  struct Output {
    int fd;
    bool terminal = false;
    bool regular = false;
    Descriptor own = {};  // a terminal opened anew, to be written without blocking
    bool broken = false;
    bool watched = false;
    bool mid_line = false;
    std::string queue = {};
    std::size_t written = 0;  // bytes of the queue
  };

  void say(const std::string& text, bool of_job);
  bool has_room_for(std::size_t output);
  static void open_anew(Output* output);
  void push(Output* output, std::string_view text);
  void pump(Output* output);
  bool write_some(Output* output);
  void update_congestion();
  void redraw();
  std::string clearing() const;
  bool shares_terminal(Stream stream) const { return stream == Stream::kErr || out_.terminal; }

  Loop& loop_;
  const std::optional<RemoteTerminal> remote_;  // then all goes through out_
  std::uint64_t passed_on_ = 0;                 // bytes of the workers' output
  bool full_ = false;                           // RemoteTerminal::most_output is reached
  std::function<void(bool)> congestion_;
  bool congested_ = false;
  Output out_, err_;
  // Both are the same; then all goes through err_, so that nothing gets into a half line.
  bool one_terminal_ = false;
  const Palette palette_;
  const bool dumb_;  // the terminal knows no escape sequences
  std::string bar_, unfinished_;
  const void* unfinished_owner_ = nullptr;
  Loop::Clock::time_point unfinished_at_;
  std::string bottom_;  // the line below everything else now
};

}  // namespace dtrun::agent
