// Asks the driver about the GPUs while a job runs. A process of its own does it, `dtrun gpus --on_request`: a
// broken driver may never answer, and must not stop the agent.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/gpu.h"
#include "agent/system/loop.h"
#include "proto/base/descriptor.h"

namespace dtrun::agent {

class GpuObserver {
 public:
  using Answer = std::function<void(std::optional<GpuReading>)>;

  // `command` answers each line of its input with a reading. `started` hears of its process, which becomes a
  // child of this one.
  GpuObserver(Loop& loop, std::vector<std::string> command, std::vector<std::string> environment,
              std::function<void(pid_t)> started);
  ~GpuObserver() { stop(); }
  GpuObserver(const GpuObserver&) = delete;

  // Calls `done` with a reading that was begun after this call, or with nothing once `limit` is over, or at
  // once while the driver owes answers for longer than was waited. On the loop, or from inside this call.
  void ask(std::chrono::milliseconds limit, Answer done);
  void stop();

 private:
  struct Question {
    Answer done;  // null: its time is over
    std::optional<Loop::TimerId> timer;
    int id = 0;
  };

  bool start();
  void readable();
  void take(const std::string& line);
  void overdue(int id);
  void fail();

  Loop& loop_;
  const std::vector<std::string> command_, environment_;
  const std::function<void(pid_t)> started_;
  Descriptor socket_, process_;  // process_: pidfd
  std::string text_;             // of an answer, as far as it has come
  std::deque<Question> questions_;
  int next_id_ = 0;
};

}  // namespace dtrun::agent
