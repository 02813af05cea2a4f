// The process's own standard output and standard error.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "agent/output/console.h"
#include "agent/output/queued_output.h"
#include "agent/system/loop.h"

namespace dtrun::agent {

class TerminalConsole : public Console {
 public:
  // `congestion(true)` when the queues grow over their limit, `congestion(false)` when they have drained.
  // `disk` writes to regular files.
  TerminalConsole(Loop& loop, Disk& disk, ColourMode colour, std::function<void(bool)> congestion);

  void write(Stream stream, std::string_view text) override;
  void say(const std::string& text) override;
  void set_bar(const std::string& bar) override;
  void set_unfinished(const void* owner, std::string_view line) override;
  bool has_terminal() const override { return err_.terminal(); }
  bool is_terminal(Stream stream) const override {
    return stream == Stream::kOut ? out_.terminal() : err_.terminal();
  }
  int columns() const override;
  std::size_t queued() const override { return out_.queued() + err_.queued(); }
  void drop() override;

 private:
  void update_congestion() { congestion_.update(queued()); }
  void redraw();
  std::string clearing() const;
  bool shares_terminal(Stream stream) const { return stream == Stream::kErr || out_.terminal(); }
  void lose_standard_output(int error);

  Congestion congestion_;
  QueuedOutput out_, err_;
  // Both are the same; then all goes through err_, so that nothing gets into a half line.
  const bool one_terminal_;
  const bool dumb_;  // the terminal knows no escape sequences
  std::string bar_, unfinished_;
  const void* unfinished_owner_ = nullptr;
  Loop::Clock::time_point unfinished_at_;
  std::string bottom_;  // the line below everything else now
};

}  // namespace dtrun::agent
