// Finds where the workers of this node stand before they are ended because the job hangs: first the kernel's
// view of each, then the stacks as py-spy or gdb shows them, where one is installed. All of it goes to each
// worker's stacks.txt. Never blocks the loop.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <deque>
#include <filesystem>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/stack_location.h"
#include "agent/system/loop.h"
#include "proto/base/descriptor.h"

namespace dtrun::agent {

class Inspection {
 public:
  struct InspectedWorker {
    int local_rank = 0;
    pid_t group = 0;             // its process group
    std::filesystem::path file;  // is replaced
  };

  enum class Tools {
    kAll,
    kHarmless,  // that neither stop a process nor can disturb one: its workers go on
  };

  // Begins at once. Calls `done` on the loop when all is written, after `limit` at the latest (for all
  // workers together); not once this object is destroyed, and never from within the constructor.
  // `environment` is the tools'.
  Inspection(Loop& loop, const std::vector<InspectedWorker>& workers, std::chrono::milliseconds limit,
             Tools tools, std::vector<std::string> environment, std::function<void()> done);
  ~Inspection();
  Inspection(const Inspection&) = delete;

  // The place where a worker stands, as far as known by now.
  StackLocation stack_location(int local_rank) const;
  // One line on a tool that would show more next time; empty if there is none.
  std::string advice() const;

 private:
  struct Seen {
    InspectedWorker worker;
    pid_t pid = 0;  // of the group, that tells most
    bool python = false;
    KernelWait wait;
    std::int64_t ticks = 0;
    std::vector<Frame> py_spy, gdb;
  };
  enum class Kind { kPySpy, kGdb };
  struct Task {
    Seen* seen = nullptr;
    pid_t pid = 0;
    Kind kind = Kind::kPySpy;
  };
  struct Running {
    Task task;
    std::uintmax_t begin = 0;  // of its output in the file
    Descriptor handle;         // pidfd; the agent reaps it like any child
    std::optional<Loop::TimerId> timer;
  };

  void first_inspection(const InspectedWorker& worker);
  void plan_tasks();
  void add_task(Seen& seen, pid_t pid);
  std::vector<std::string> command(const Task& task) const;
  void go_on();
  void run(const Task& task);
  void ended(Running* running);
  void stop(Running& running);
  void take_frames(const Running& running);
  void finish();

  Loop& loop_;
  const Tools tools_;
  const std::vector<std::string> environment_;
  const std::function<void()> done_;
  const Loop::Clock::time_point begin_, deadline_;
  std::string py_spy_, gdb_;  // paths; empty: there is none
  std::list<Seen> seen_;
  std::deque<Task> tasks_;
  std::list<Running> running_;
  Timer timer_{loop_};
  bool refused_ = false;  // a tool was not permitted to look
};

}  // namespace dtrun::agent
