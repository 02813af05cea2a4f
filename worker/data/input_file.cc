#include "worker/data/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "worker/data/message.h"

namespace dtrun::worker {
namespace {

Status cannot_read(const std::filesystem::path& path, const std::string& why) {
  return bad_input(path, "cannot be read: " + why);
}

// O_NONBLOCK: opening a FIFO must not block a check of the path.
int open_for_reading(const std::filesystem::path& path) {
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

Status read_all(int descriptor, std::uint64_t offset, std::span<std::uint8_t> out,
                const std::filesystem::path& path) {
  while (!out.empty()) {
    const ssize_t got = ::pread(descriptor, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return cannot_read(path, std::strerror(errno));
    if (got == 0) {
      return cannot_read(path, "it became shorter; leave data files as they are while a job trains on them");
    }
    offset += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
  return Status();
}

}  // namespace

Result<InputFile> InputFile::open(const std::filesystem::path& path) {
  const int descriptor = open_for_reading(path);
  if (descriptor < 0) {
    const int error = errno;
    const std::string install = error == ENOENT ? install_or(path) : "";
    return cannot_read(path, std::strerror(error) + ("; " + install) + "check the path and who may read it");
  }
  struct stat about {};
  const int failed = ::fstat(descriptor, &about);
  InputFile file(path, failed ? 0 : static_cast<std::uint64_t>(about.st_size), descriptor);
  if (failed) return cannot_read(path, std::strerror(errno));
  if (S_ISDIR(about.st_mode)) return cannot_read(path, "it is a directory; a file is expected here");
  if (!S_ISREG(about.st_mode)) return cannot_read(path, "it is not a regular file");
  // Samples are read in random order, so reading ahead would fetch bytes for nothing.
  ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_RANDOM);
  return file;
}

InputFile::~InputFile() { close(); }

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), size_(other.size_), descriptor_(std::exchange(other.descriptor_, -1)) {}

void InputFile::read_ahead() const {
  if (descriptor_ >= 0) ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);
}

void InputFile::close() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

Status InputFile::read(std::uint64_t offset, std::span<std::uint8_t> out) const {
  if (descriptor_ >= 0) return read_all(descriptor_, offset, out, path_);
  const int descriptor = open_for_reading(path_);
  if (descriptor < 0) return cannot_read(path_, std::strerror(errno));
  Status status = read_all(descriptor, offset, out, path_);
  ::close(descriptor);
  return status;
}

}  // namespace dtrun::worker
