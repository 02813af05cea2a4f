// Bytes on their way to a descriptor, which the loop writes as its reader takes them, or the disk's thread if
// it is a regular file: nothing here blocks.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "agent/system/disk.h"
#include "agent/system/loop.h"
#include "proto/base/descriptor.h"

namespace dtrun::agent {

class QueuedOutput {
 public:
  // `changed()` after each change of the queue. `broken(errno)` once, when a write fails: later text is
  // thrown away.
  QueuedOutput(Loop& loop, Disk& disk, int fd, std::function<void()> changed,
               std::function<void(int)> broken);
  ~QueuedOutput();
  QueuedOutput(const QueuedOutput&) = delete;

  void push(std::string_view text);
  // Throws away the queue and all later text, if there is a queue.
  void drop();

  int fd() const { return fd_; }
  bool terminal() const { return terminal_; }
  bool mid_line() const { return mid_line_; }  // the last text did not end with a newline
  std::size_t queued() const { return queue_.size() - written_ + on_disk_; }  // bytes

 private:
  void open_anew();
  bool write_some();
  void pump();
  void push_to_disk(std::string text);

  Loop& loop_;
  Disk& disk_;
  int fd_;
  Descriptor own_;  // a terminal opened anew, to be written without blocking
  const std::function<void()> changed_;
  const std::function<void(int)> broken_;
  bool terminal_, regular_;
  const std::shared_ptr<std::atomic<bool>> dropped_ = std::make_shared<std::atomic<bool>>(false);
  std::size_t on_disk_ = 0;  // bytes that the disk's thread has not written
  bool closed_ = false, watched_ = false, mid_line_ = false;
  std::string queue_;
  std::size_t written_ = 0;  // bytes of the queue
};

// Tells when more is queued than a slow reader is waited for with, and when that has drained.
class Congestion {
 public:
  explicit Congestion(std::function<void(bool)> tell) : tell_(std::move(tell)) {}

  void update(std::size_t queued);  // bytes

 private:
  const std::function<void(bool)> tell_;
  bool congested_ = false;
};

}  // namespace dtrun::agent
