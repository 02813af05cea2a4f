// Hands a command of the user's the events that people want to hear of, each as a JSON line on its standard
// input: a bridge to a pager, a chat or a tracker. A thread of its own runs one command at a time, so that a
// command that hangs, crashes or floods costs the job nothing.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace dtrun::agent {

// start_workers, hang, news, recovered, report, end (docs/logs.md).
bool is_for_hook(std::string_view event);

class EventHook {
 public:
  // A command that takes longer is killed, with all that it started in its process group.
  static constexpr std::chrono::milliseconds kLimit{10000};
  // Events that wait for an earlier command; of more the oldest are dropped.
  static constexpr std::size_t kMostWaiting = 64;

  // `command` is a shell's. Starts nothing before the first event.
  explicit EventHook(std::string command, std::chrono::milliseconds limit = kLimit);
  ~EventHook() { finish(); }
  EventHook(const EventHook&) = delete;

  void tell(std::string line);
  // Waits for the commands of all events so far, at most `limit` in all. Nothing is told after it.
  void finish();
  // Once, when a command has failed or an event was dropped: what and why, a sentence.
  std::string take_fault();

 private:
  void run();
  std::string run_command(const std::string& line, std::chrono::milliseconds limit) const;

  const std::string command_;
  const std::chrono::milliseconds limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> waiting_;  // guarded by mutex_, like those below
  std::string fault_;
  bool failed_ = false;
  std::chrono::steady_clock::time_point end_ = std::chrono::steady_clock::time_point::max();  // of finish()
  std::thread thread_;
};

}  // namespace dtrun::agent
