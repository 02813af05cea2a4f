// Writes down where the processes of a hung worker stand, before it is killed: what the kernel says of each
// thread, and the stacks as py-spy or gdb shows them, if one is installed. Takes a bounded time and never
// blocks the loop.
#pragma once

#include <sys/types.h>

#include <deque>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/system/descriptor.h"
#include "agent/system/loop.h"

namespace dtrun::agent {

class StackDump {
 public:
  // Begins at once with the process group `group`; `file` is replaced. Calls `done` on the loop when all is
  // written, after 20 s at the latest. `done` is not called once this object is destroyed, and must not
  // destroy it. `environment` is the tools'.
  StackDump(Loop& loop, pid_t group, std::filesystem::path file, const std::vector<std::string>& environment,
            std::function<void()> done);
  ~StackDump();
  StackDump(const StackDump&) = delete;

  // The beginning of a dump, for a terminal.
  static std::vector<std::string> in_short(const std::filesystem::path& file);

 private:
  void next_tool();
  void run(const std::vector<std::string>& argv);
  void tool_ended();
  void stop_tool();
  void append(const std::string& text) const;

  Loop& loop_;
  const pid_t group_;
  const std::filesystem::path file_;
  const std::vector<std::string> environment_;
  const std::function<void()> done_;
  const Loop::Clock::time_point deadline_;
  std::deque<std::vector<std::string>> tools_;  // command lines still to run
  Descriptor handle_;  // pidfd of the tool that runs; the agent reaps it like any child
  std::optional<Loop::TimerId> timer_;
};

// What /proc tells of every thread of `processes`: name, state, where in the kernel it waits.
// `kernel_stacks`: with the kernel's own stacks, where we may read them.
std::string thread_states(const std::vector<pid_t>& processes, bool kernel_stacks);

}  // namespace dtrun::agent
