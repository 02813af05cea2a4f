#include "tests/worker/trainer/disk_faults.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace dtrun::test {
namespace {

// A change of names that is in memory only until `parent` is synced.
struct Naming {
  enum Kind { kCreated, kMadeDirectory, kRenamed, kExchanged } kind;
  std::string from, path;  // from: for a rename
  std::string parent() const { return path.substr(0, path.rfind('/')); }
};

// Content of a file that is in memory only, from `synced` on. The descriptor finds it under any name.
struct Content {
  int fd;
  off_t synced;
};

std::recursive_mutex mutex;  // guards the members below
std::string directory;       // empty: nothing is counted
DiskFault fault;
int at_call;
DiskLog* calls;
std::vector<Naming> namings;
std::map<ino_t, Content> contents;

std::string path_of(int fd) {
  char path[PATH_MAX];
  const auto name = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t size = readlink(name.c_str(), path, sizeof path);
  return size < 0 ? "" : std::string(path, static_cast<std::size_t>(size));
}

std::string path_of(int at, const char* path) {
  return *path == '/' || at == AT_FDCWD ? path : path_of(at) + "/" + path;
}

bool is_ours(const std::string& path) {
  return !directory.empty() && (path == directory || path.starts_with(directory + "/"));
}

[[noreturn]] void die() {
  syscall(SYS_kill, getpid(), SIGKILL);
  std::abort();
}

void cut_power() {
  for (const auto& [inode, content] : contents)
    if (ftruncate(content.fd, content.synced) != 0) std::abort();
  const std::string all = std::exchange(directory, "");
  for (auto naming = namings.rbegin(); naming != namings.rend(); ++naming) {
    std::error_code gone;
    const bool renamed = naming->kind == Naming::kRenamed, exchanged = naming->kind == Naming::kExchanged;
    if (renamed || exchanged)
      syscall(SYS_renameat2, AT_FDCWD, naming->path.c_str(), AT_FDCWD, naming->from.c_str(),
              exchanged ? RENAME_EXCHANGE : 0);
    else
      std::filesystem::remove_all(naming->path, gone);
  }
  die();
}

// Counts a call. True: it is to fail with errno. `is_short`: a write that is to take half of it.
bool fails(const char* name, const std::string& path, bool* is_short = nullptr) {
  if (!is_ours(path)) return false;
  const int call = calls->calls++;
  if (call < kMostDiskCalls) {
    calls->writes[call] = is_short != nullptr;
    std::snprintf(calls->names[call], sizeof calls->names[call], "%s", name);
  }
  if (call < at_call || (call > at_call && fault != DiskFault::kFull)) return false;
  switch (fault) {
    case DiskFault::kNone:
      return false;
    case DiskFault::kKill:
      die();
    case DiskFault::kPowerCut:
      cut_power();
      return false;
    case DiskFault::kFull:
      errno = ENOSPC;
      return std::string_view(name) != "unlink";
    case DiskFault::kBroken:
      errno = EIO;
      return true;
    case DiskFault::kShort:
      if (is_short != nullptr) *is_short = true;
      return false;
  }
  return false;
}

void note(Naming::Kind kind, const std::string& path, const std::string& from = "") {
  if (is_ours(path)) namings.push_back({.kind = kind, .from = from, .path = path});
}

// The step of checkpoints/step-00000004: 4.
int step_of(const std::string& path) {
  const std::size_t at = path.rfind("/step-");
  return at == std::string::npos ? -1 : std::atoi(path.c_str() + at + 6);
}

void synced(int fd) {
  const std::string path = path_of(fd);
  struct stat status {};
  if (!is_ours(path) || fstat(fd, &status) != 0) return;
  if (const auto known = contents.find(status.st_ino); known != contents.end())
    known->second.synced = status.st_size;
  std::erase_if(namings, [&](const Naming& naming) {
    const bool now = naming.parent() == path;
    const bool renamed = naming.kind == Naming::kRenamed || naming.kind == Naming::kExchanged;
    if (const int step = step_of(naming.path); now && renamed && step >= 0 && step < 8)
      calls->synced[step] = true;
    return now;
  });
}

int rename_with(const char* name, const std::string& from, const std::string& to, unsigned flags) {
  const std::lock_guard lock(mutex);
  if (fails(name, to)) return -1;
  const auto result =
      static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags));
  if (result == 0) note(flags == RENAME_EXCHANGE ? Naming::kExchanged : Naming::kRenamed, to, from);
  return result;
}

}  // namespace

void fail_disk(const std::string& below, DiskFault what, int call, DiskLog* log) {
  const std::lock_guard lock(mutex);
  directory = below, fault = what, at_call = call, calls = log;
}

}  // namespace dtrun::test

using namespace dtrun::test;

extern "C" int open(const char* name, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    va_list rest;
    va_start(rest, flags);
    mode = va_arg(rest, mode_t);
    va_end(rest);
  }
  const std::lock_guard lock(mutex);
  const std::string path = path_of(AT_FDCWD, name);
  const bool creates = (flags & O_CREAT) != 0 && access(name, F_OK) != 0;
  if ((flags & (O_CREAT | O_WRONLY | O_RDWR)) != 0 && fails("open", path)) return -1;
  const auto fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, name, flags, mode));
  if (fd >= 0 && creates) note(Naming::kCreated, path);
  return fd;
}

extern "C" ssize_t write(int fd, const void* bytes, size_t size) {
  const std::lock_guard lock(mutex);
  bool is_short = false;
  const std::string path = directory.empty() ? "" : path_of(fd);
  if (fails("write", path, &is_short)) return -1;
  struct stat status {};
  if (is_ours(path) && fstat(fd, &status) == 0 && !contents.contains(status.st_ino))
    contents[status.st_ino] = {.fd = fcntl(fd, F_DUPFD_CLOEXEC, 100), .synced = status.st_size};
  return syscall(SYS_write, fd, bytes, is_short ? (size + 1) / 2 : size);
}

// The data that would be lost without a sync is known here, so the real sync, which takes most of the time,
// is left out.
extern "C" int fsync(int fd) {
  const std::lock_guard lock(mutex);
  const std::string path = directory.empty() ? "" : path_of(fd);
  if (fails("fsync", path)) return -1;
  if (!is_ours(path)) return static_cast<int>(syscall(SYS_fsync, fd));
  synced(fd);
  return 0;
}

extern "C" int rename(const char* from, const char* to) noexcept {
  return rename_with("rename", path_of(AT_FDCWD, from), path_of(AT_FDCWD, to), 0);
}

extern "C" int renameat2(int from_at, const char* from, int to_at, const char* to, unsigned flags) noexcept {
  return rename_with("renameat2", path_of(from_at, from), path_of(to_at, to), flags);
}

extern "C" int mkdir(const char* name, mode_t mode) noexcept {
  const std::lock_guard lock(mutex);
  const std::string path = path_of(AT_FDCWD, name);
  if (fails("mkdir", path)) return -1;
  const auto result = static_cast<int>(syscall(SYS_mkdirat, AT_FDCWD, name, mode));
  if (result == 0) note(Naming::kMadeDirectory, path);
  return result;
}

extern "C" int unlink(const char* name) noexcept {
  const std::lock_guard lock(mutex);
  if (fails("unlink", path_of(AT_FDCWD, name))) return -1;
  return static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, name, 0));
}

extern "C" int unlinkat(int at, const char* name, int flags) noexcept {
  const std::lock_guard lock(mutex);
  if (fails("unlink", path_of(at, name))) return -1;
  return static_cast<int>(syscall(SYS_unlinkat, at, name, flags));
}
