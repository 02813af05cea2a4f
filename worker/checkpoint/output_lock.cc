#include "worker/checkpoint/output_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <random>
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
  std::array<char, kMaxLockSignature> text{};
  const ssize_t size = pread(fd, text.data(), text.size(), 0);
  return size > 0 ? std::string(text.data(), static_cast<std::size_t>(size)) : "";
}

std::string new_signature() {
  std::array<char, 256> host{};
  (void)gethostname(host.data(), host.size() - 1);
  std::random_device random;
  return "process " + std::to_string(getpid()) + " on " + host.data() + "\n" + std::to_string(random()) +
         "-" + std::to_string(random());
}

// Writes the signature for processes that find the directory locked, and for ranks on other nodes, hence the
// sync. A full disk may prevent it.
void sign(int fd, const std::string& text) {
  if (ftruncate(fd, 0) == 0 && pwrite(fd, text.data(), text.size(), 0) > 0) fsync(fd);
}

// The first line of a signature.
std::string writer_of(const std::string& signature) { return signature.substr(0, signature.find('\n')); }

std::filesystem::path lock_file(const std::filesystem::path& output_dir) { return output_dir / ".lock"; }

}  // namespace

OutputLock::OutputLock(const std::filesystem::path& output_dir, std::chrono::milliseconds patience)
    : signature_(new_signature()) {
  make_directories(output_dir);
  const std::filesystem::path path = lock_file(output_dir);
  fd_.reset(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd_.open()) throw cannot_write("cannot create " + path.string(), errno);
  const int error = lock(fd_.get(), std::chrono::steady_clock::now() + patience);
  held_ = error == 0;
  if (error != EWOULDBLOCK) {
    sign(fd_.get(), signature_);
    return;
  }
  const Status refused = in_use(output_dir, writer_of(text_of(fd_.get())));
  throw WorkerError(refused.exit_code(), refused.message());
}

Status in_use(const std::filesystem::path& output_dir, const std::string& writer) {
  return Status(kExitCannotCreate, output_dir.string() + " is in use by another run" +
                                       (writer.empty() ? "" : " (" + writer + ")") +
                                       "; wait until that has ended, or choose another output_dir");
}

// Takes a shared lock for a moment: a writer that starts just then tries again.
std::optional<std::string> current_writer(const std::filesystem::path& output_dir) {
  const Descriptor file(open(lock_file(output_dir).c_str(), O_RDONLY | O_CLOEXEC));
  const bool held = file.open() && flock(file.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  return held ? std::optional(writer_of(text_of(file.get()))) : std::nullopt;
}

std::string lock_signature(const std::filesystem::path& output_dir) {
  const Descriptor file(open(lock_file(output_dir).c_str(), O_RDONLY | O_CLOEXEC));
  return text_of(file.get());
}

}  // namespace dtrun::worker
