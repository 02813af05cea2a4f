// A worker's standard output and error: their pipes, which are read on the loop, and those who get what
// comes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/output/console.h"
#include "agent/output/log_writer.h"
#include "agent/system/loop.h"
#include "proto/base/descriptor.h"

namespace dtrun::agent {

class OutputPipes {
 public:
  // `closed`: called on the loop when the last writer of both pipes is gone.
  OutputPipes(Loop& loop, Console& console, StreamPlan out, StreamPlan err, std::function<void()> closed);
  ~OutputPipes();
  OutputPipes(const OutputPipes&) = delete;

  // Makes the pipes. The child's ends are the caller's; false with errno, and then some may be -1.
  bool open(int* child_out, int* child_err);
  void read();  // begins
  // Stops or resumes reading, whatever the log files of this worker have taken.
  void pause(bool paused);
  // True while nothing is read: the worker waits in its write, once its pipe is full.
  bool paused() const { return paused_ || behind_; }
  // Reads what is in the pipes now, even while paused: of a worker that has ended.
  void drain();
  bool is_open() const { return out_.pipe.open() || err_.pipe.open(); }
  // What is unread is lost; all that was read is passed on.
  void close();

  // Sets the prefix of lines from now on.
  void set_prefix(const LinePrefix& prefix);

  std::uint64_t bytes() const { return bytes_; }
  // Of the stream that was written to last.
  std::string_view last_line() const { return last_ ? last_->writer.last_line() : std::string_view(); }
  // Seconds for which nothing has come.
  double age(Loop::Clock::time_point now) const {
    return std::chrono::duration<double>(now - last_at_).count();
  }
  std::vector<std::string> error_tail() const { return err_.writer.tail(); }

 private:
  struct Stream {
    Descriptor pipe;
    LogWriter writer;
    bool watched = false;
    Loop::Clock::time_point line_at{};  // when the line that has no end yet began, or was shown so far
  };
  void watch(Stream& stream);
  void unwatch(Stream& stream);
  void read_from(Stream& stream);
  void finish(Stream& stream);
  void balance();
  void show_rest_later();
  void show_rest();
  void rewatch();

  Loop& loop_;
  Stream out_, err_;
  const std::function<void()> closed_;
  const Stream* last_ = nullptr;  // one of them; null: nothing has come
  std::uint64_t bytes_ = 0;
  Loop::Clock::time_point last_at_ = Loop::Clock::now();
  Timer rest_timer_{loop_};  // for lines that have begun
  Loop::Clock::time_point rest_at_{};
  bool paused_ = false;
  bool behind_ = false;  // the log files
};

}  // namespace dtrun::agent
