#include "worker/checkpoint/durable.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "worker/base/error.h"
#include "worker/base/pulse.h"

namespace dtrun::worker {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kWrittenAtOnce = 16u << 20;  // written between two signs of life

[[noreturn]] void fail(const std::string& what, const fs::path& path, int error) {
  throw cannot_write("cannot " + what + " " + path.string(), error);
}

Descriptor open_file(const fs::path& path, int flags) {
  return Descriptor(open(path.c_str(), flags | O_CLOEXEC, 0666));
}

void write_all(int fd, std::string_view bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), std::min(bytes.size(), kWrittenAtOnce));
    Pulse::beat();
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write", path, errno);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void rename_path(const fs::path& from, const fs::path& to) {
  if (rename(from.c_str(), to.c_str()) != 0) fail("rename " + from.string() + " to", to, errno);
}

}  // namespace

void write_synced(const fs::path& path, std::span<const std::string_view> pieces) {
  const Descriptor file = open_file(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (!file.open()) fail("create", path, errno);
  for (std::string_view piece : pieces) write_all(file.get(), piece, path);
  if (fsync(file.get()) != 0) fail("sync", path, errno);
}

void replace_file(const fs::path& path, std::span<const std::string_view> pieces) {
  // One name for all writers, so that the file of a dead writer is simply overwritten.
  const fs::path scratch = path.parent_path() / ("." + path.filename().string() + ".tmp");
  try {
    write_synced(scratch, pieces);
    rename_path(scratch, path);
  } catch (...) {
    unlink(scratch.c_str());
    throw;
  }
  sync_directory(path.parent_path());
}

void make_directories(const fs::path& path) {
  std::vector<fs::path> missing;
  std::error_code error;
  for (fs::path each = path; !each.empty() && !fs::exists(each, error); each = each.parent_path())
    missing.push_back(each);
  fs::create_directories(path, error);
  if (error) fail("create the directory", path, error.value());
  for (const fs::path& each : missing) sync_directory(each.parent_path());
}

void sync_directory(const fs::path& path) {
  const fs::path directory = path.empty() ? fs::path(".") : path;
  const Descriptor descriptor = open_file(directory, O_RDONLY | O_DIRECTORY);
  if (!descriptor.open()) fail("open", directory, errno);
  // Some network file systems cannot sync a directory, and say so with EINVAL.
  if (fsync(descriptor.get()) != 0 && errno != EINVAL) fail("sync", directory, errno);
}

void move_directory(const fs::path& from, const fs::path& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
  if (errno == EEXIST || errno == ENOTEMPTY) {
    if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return;
  }
  if (errno != EINVAL && errno != ENOSYS) fail("rename " + from.string() + " to", to, errno);
  // The file system knows no exchange: rename step by step.
  const fs::path aside = from.string() + ".old";
  const bool replaces = rename(to.c_str(), aside.c_str()) == 0;
  rename_path(from, to);
  if (replaces) rename_path(aside, from);
}

ScratchDirectory::ScratchDirectory(fs::path path) : path_(std::move(path)) {
  if (mkdir(path_.c_str(), 0777) != 0) fail("create the directory", path_, errno);
  lock_ = open_file(path_, O_RDONLY | O_DIRECTORY);
  // Without a lock (some network file systems) the directory merely looks abandoned to the next writer, and
  // an output directory has one writer at a time.
  if (lock_.open()) flock(lock_.get(), LOCK_EX | LOCK_NB);
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void remove_if_abandoned(const fs::path& path) {
  const Descriptor directory = open_file(path, O_RDONLY | O_DIRECTORY);
  if (!directory.open() || flock(directory.get(), LOCK_EX | LOCK_NB) != 0) return;
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

}  // namespace dtrun::worker
