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
Descriptor open_for_reading(const std::filesystem::path& path) {
  return Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
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
  Descriptor descriptor = open_for_reading(path);
  if (!descriptor.open()) {
    const int error = errno;
    const std::string install = error == ENOENT ? install_or(path) : "";
    return cannot_read(path, std::strerror(error) + ("; " + install) + "check the path and who may read it");
  }
  struct stat about {};
  if (::fstat(descriptor.get(), &about) != 0) return cannot_read(path, std::strerror(errno));
  if (S_ISDIR(about.st_mode)) return cannot_read(path, "it is a directory; a file is expected here");
  if (!S_ISREG(about.st_mode)) return cannot_read(path, "it is not a regular file");
  // Samples are read in random order, so reading ahead would fetch bytes for nothing.
  ::posix_fadvise(descriptor.get(), 0, 0, POSIX_FADV_RANDOM);
  return InputFile(path, static_cast<std::uint64_t>(about.st_size), std::move(descriptor));
}

void InputFile::read_ahead() const {
  if (descriptor_.open()) ::posix_fadvise(descriptor_.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
}

Status InputFile::read(std::uint64_t offset, std::span<std::uint8_t> out) const {
  if (descriptor_.open()) return read_all(descriptor_.get(), offset, out, path_);
  const Descriptor descriptor = open_for_reading(path_);
  if (!descriptor.open()) return cannot_read(path_, std::strerror(errno));
  return read_all(descriptor.get(), offset, out, path_);
}

}  // namespace dtrun::worker
