// The console of an agent that a launcher on another host has started: all that it is told becomes messages
// of proto/launch.proto.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "agent/core/job_spec.h"
#include "agent/output/console.h"
#include "agent/output/queued_output.h"
#include "agent/system/loop.h"
#include "proto/launch.pb.h"

namespace dtrun::agent {

class RemoteConsole : public Console {
 public:
  // `congestion(true)` when more output is under way than its limit, `congestion(false)` when less is.
  RemoteConsole(Loop& loop, Disk& disk, const RemoteTerminal& terminal, std::function<void(bool)> congestion);

  void send(const launch::FromHost& message);
  // The launcher's reader has taken so many bytes of output.
  void shown(std::size_t bytes);

  void write(Stream stream, std::string_view text) override;
  void say(const std::string& text) override { say(text, false); }
  void tell_job(const std::string& text) override { say(text, true); }
  void set_bar(const std::string& bar) override;
  void set_unfinished(const void*, std::string_view) override {}
  bool has_terminal() const override { return terminal_.bar; }
  bool is_terminal(Stream) const override { return false; }
  int columns() const override { return terminal_.columns; }
  std::size_t queued() const override { return out_.queued(); }
  void drop() override { out_.drop(); }

 private:
  void say(const std::string& text, bool of_job);

  const RemoteTerminal terminal_;
  Congestion congestion_;
  QueuedOutput out_;
  std::size_t unshown_ = 0;  // bytes of output
  std::string bar_;
};

}  // namespace dtrun::agent
