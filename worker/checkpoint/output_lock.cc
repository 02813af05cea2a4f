#include "worker/checkpoint/output_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>

#include "worker/base/error.h"
#include "worker/checkpoint/durable.h"

namespace dtrun::worker {

namespace {

constexpr std::chrono::milliseconds kRetry{50};

// 0, or the errno of the last attempt.
int lock(int fd, std::chrono::steady_clock::time_point deadline) {
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return errno;
    if (std::chrono::steady_clock::now() >= deadline) return EWOULDBLOCK;
    std::this_thread::sleep_for(kRetry);
  }
  return 0;
}

std::string text_of(int fd) {
  std::array<char, 256> text{};
  const ssize_t size = pread(fd, text.data(), text.size(), 0);
  return size > 0 ? std::string(text.data(), static_cast<std::size_t>(size)) : "";
}

// For the message of whoever finds the directory locked. A full disk may keep it from being written.
void sign(int fd) {
  std::array<char, 256> host{};
  (void)gethostname(host.data(), host.size() - 1);
  const std::string text = "process " + std::to_string(getpid()) + " on " + host.data();
  if (ftruncate(fd, 0) == 0) (void)!pwrite(fd, text.data(), text.size(), 0);
}

}  // namespace

OutputLock::OutputLock(const std::filesystem::path& output_dir, std::chrono::milliseconds patience) {
  make_directories(output_dir);
  const std::filesystem::path path = output_dir / ".lock";
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) {
    throw WorkerError(kExitConfig, "cannot create " + path.string() + ": " + std::strerror(errno) +
                                       "; choose an output_dir that can be written");
  }
  const int error = lock(fd_, std::chrono::steady_clock::now() + patience);
  held_ = error == 0;
  if (held_) sign(fd_);
  if (error != EWOULDBLOCK) return;
  const std::string holder = text_of(fd_);
  close(fd_);
  throw WorkerError(kExitConfig, output_dir.string() + " is in use by another run" +
                                     (holder.empty() ? "" : " (" + holder + ")") +
                                     "; wait until that has ended, or choose another output_dir");
}

OutputLock::~OutputLock() { close(fd_); }

}  // namespace dtrun::worker
