#include "agent/output/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>

#include "proto/base/record_lock.h"
#include "proto/core/exit_codes.h"

namespace dtrun::agent {
namespace {

std::filesystem::path old_file(const std::filesystem::path& path, int number) {
  return number == 0 ? path : std::filesystem::path(path.string() + "." + std::to_string(number));
}

Status cannot_write(const std::filesystem::path& path, int error) {
  return errno_status(kExitSoftware, "cannot write " + path.string(), error);
}

// True if no other process has the file. A file system without locks gives no answer.
bool is_ours(int fd) { return lock_whole(fd) || (errno != EAGAIN && errno != EACCES); }

}  // namespace

Result<LogFile> LogFile::open(const std::filesystem::path& path, std::uint64_t max_size, Writers writers) {
  LogFile file;
  file.writers_ = writers;
  file.path_ = path;
  file.max_size_ = max_size;
  RETURN_IF_ERROR(file.reopen());
  return file;
}

Status LogFile::reopen() {
  file_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file_.open()) return cannot_write(path_, errno);
  if (writers_ == Writers::kOneProcess && !is_ours(file_.get())) {
    file_.reset();
    return Status(kExitCannotCreate, "another run writes " + path_.string() +
                                         " now: give each run its own --rdzv_id or --log_dir");
  }
  struct stat info {};
  size_ = fstat(file_.get(), &info) == 0 ? static_cast<std::uint64_t>(info.st_size) : 0;
  return {};
}

Status LogFile::rotate() {
  for (int number = kKept - 1; number >= 0; --number) {
    std::error_code error;
    const auto from = old_file(path_, number);
    if (!std::filesystem::exists(from, error)) continue;
    std::filesystem::rename(from, old_file(path_, number + 1), error);
    if (error) {
      file_.reset();
      return cannot_write(path_, error.value()).within("cannot begin a new log file");
    }
  }
  return reopen();
}

// How much of `bytes` the file takes; 0: it has to be rotated first.
std::size_t LogFile::portion(std::string_view bytes) const {
  const std::uint64_t room = size_ < max_size_ ? max_size_ - size_ : 0;
  if (max_size_ == 0 || bytes.size() <= room) return bytes.size();
  const std::size_t newline = room == 0 ? std::string_view::npos : bytes.rfind('\n', room - 1);
  if (newline != std::string_view::npos) return newline + 1;
  if (size_ > 0 && at_line_start_) return 0;
  // The line that has begun ends in this file, unless it never ends.
  const std::size_t end = std::min(bytes.find('\n'), bytes.size() - 1) + 1;
  return std::min<std::uint64_t>(end, 2 * max_size_ - std::min(size_, 2 * max_size_));
}

Status LogFile::write(std::string_view bytes) {
  while (is_open() && !bytes.empty()) {
    const std::size_t length = portion(bytes);
    if (length == 0) {
      RETURN_IF_ERROR(rotate());
      continue;
    }
    const ssize_t n = ::write(file_.get(), bytes.data(), length);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      file_.reset();
      return cannot_write(path_, error);
    }
    const auto written = static_cast<std::size_t>(n);
    size_ += written;
    if (written > 0) at_line_start_ = bytes[written - 1] == '\n';
    bytes.remove_prefix(written);
  }
  return {};
}

}  // namespace dtrun::agent
