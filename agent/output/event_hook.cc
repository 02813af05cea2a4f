#include "agent/output/event_hook.h"

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <utility>

#include "agent/text/report.h"
#include "proto/base/answer.h"

namespace dtrun::agent {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

}  // namespace

bool is_for_hook(std::string_view event) {
  static constexpr std::array<std::string_view, 7> kNames{"start_workers", "hang",   "news", "straggler",
                                                          "recovered",     "report", "end"};
  return std::ranges::find(kNames, event) != kNames.end();
}

EventHook::EventHook(std::string command, milliseconds limit) : command_(std::move(command)), limit_(limit) {}

void EventHook::tell(std::string line) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() == kMostWaiting) {
      waiting_.pop_front();
      if (!std::exchange(failed_, true)) fault_ = "--on_event: the command is too slow; events were dropped";
    }
    waiting_.push_back(std::move(line));
  }
  changed_.notify_one();
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
}

void EventHook::finish() {
  {
    const std::lock_guard lock(mutex_);
    end_ = std::min(end_, Clock::now() + limit_);
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

std::string EventHook::take_fault() {
  const std::lock_guard lock(mutex_);
  return std::exchange(fault_, "");
}

void EventHook::run() {
  std::unique_lock lock(mutex_);
  const auto ending = [this] { return end_ != Clock::time_point::max(); };
  for (;;) {
    changed_.wait(lock, [&] { return !waiting_.empty() || ending(); });
    if (waiting_.empty()) return;
    const std::string line = std::move(waiting_.front());
    waiting_.pop_front();
    const auto left = ending() ? std::chrono::duration_cast<milliseconds>(end_ - Clock::now()) : limit_;
    lock.unlock();
    std::string fault = run_command(line, std::clamp(left, milliseconds(0), limit_));
    lock.lock();
    if (!fault.empty() && !std::exchange(failed_, true)) fault_ = "--on_event: " + std::move(fault);
  }
}

// Empty: it ended with 0; else why not.
std::string EventHook::run_command(const std::string& line, milliseconds limit) const {
  const CommandAnswer answer = answer_of({"/bin/sh", "-c", command_}, line, limit);
  switch (answer.end) {
    case CommandAnswer::kNoDescriptors:
    case CommandAnswer::kNotStarted:
      return "the command cannot be started";
    case CommandAnswer::kSilent:
      return "the command took too long, or said too much, and was killed";
    case CommandAnswer::kAnswered:
      break;
  }
  if (WIFEXITED(answer.status) && WEXITSTATUS(answer.status) == 0) return "";
  return "the command ended with " + (WIFSIGNALED(answer.status)
                                          ? describe_signal(WTERMSIG(answer.status))
                                          : "exit code " + std::to_string(WEXITSTATUS(answer.status)));
}

}  // namespace dtrun::agent
