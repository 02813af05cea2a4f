// A LogFile that the disk's thread writes, so that a file system that hangs holds nobody up but the writer,
// which looks at queued(). On the loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "agent/output/log_file.h"
#include "agent/system/disk.h"

namespace dtrun::agent {

class QueuedLog {
 public:
  struct Events {
    std::function<void(const Status& why)> failed;           // once; write() takes nothing more
    std::function<void(const std::string& text)> unwritten;  // after that: text that is not in the file
    std::function<void()> written;                           // queued() has shrunk
  };

  // As LogFile::open(); makes the file's folder.
  QueuedLog(Disk& disk, const std::filesystem::path& path, std::uint64_t max_size, LogFile::Writers writers);
  ~QueuedLog() { listen({}); }
  QueuedLog(const QueuedLog&) = delete;

  // Replaces those who listened.
  void listen(Events events);
  void write(std::string text);

  bool takes() const;          // it has not failed, as far as is known
  std::size_t queued() const;  // bytes

 private:
  struct Shared;
  struct Piece;
  using Work = std::function<Status(LogFile&, const std::string& text)>;
  void post(std::string text, Work work);

  Disk& disk_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace dtrun::agent
