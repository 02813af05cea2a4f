#include "cmd/launch/detached_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "agent/system/pidfd.h"
#include "proto/base/framed_channel.h"
#include "proto/base/record_lock.h"

namespace dtrun::cmd {
namespace {

namespace fs = std::filesystem;

constexpr auto kKeepEnded = std::chrono::hours(30 * 24);
constexpr const char* kOutput = "output.log";
constexpr const char* kExitCode = "exit_code";
constexpr const char* kCut = "cut";           // behind the exit code
constexpr std::size_t kRoomForExitCode = 16;  // bytes, written at the start: a full disk has them

Descriptor open_to_read(const fs::path& file) {
  return Descriptor(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
}

bool write_exit_code(int fd, std::string text) {
  text.resize(kRoomForExitCode, ' ');
  return pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
}

// On a network's file system the lock may be that of a process on another host, whose number means something
// else here.
bool has_open(pid_t pid, int fd) {
  struct stat wanted {
  }, found{};
  fstat(fd, &wanted);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd", error)) {
    const bool same = stat(entry.path().c_str(), &found) == 0 && found.st_dev == wanted.st_dev &&
                      found.st_ino == wanted.st_ino;
    if (same) return true;
  }
  return false;
}

void remove_old(const fs::path& runs) {
  std::error_code error;
  std::vector<fs::path> old;
  for (const auto& entry : fs::directory_iterator(runs, error)) {
    const auto written = fs::last_write_time(entry.path() / kExitCode, error);
    if (!error && fs::file_time_type::clock::now() - written > kKeepEnded) old.push_back(entry.path());
  }
  for (const fs::path& run : old) {
    const Descriptor fd = open_to_read(run / kExitCode);
    if (fd.open() && !lock_holder(fd.get())) fs::remove_all(run, error);
  }
}

Status in_use(const fs::path& folder) {
  return Status(kExitCannotCreate, folder.string() + ": a detached run of this name goes on here");
}

Status cannot_create(const fs::path& file) { return errno_status(kExitCannotCreate, file.string(), errno); }

}  // namespace

fs::path state_folder() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state == '/') return fs::path(state) / "dtrun";
  const char* home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? fs::path(home) / ".local/state/dtrun" : fs::path();
}

Status make_private_folder(const fs::path& folder) {
  std::error_code error;
  if (folder.is_relative())
    return Status(kExitCannotCreate, "neither XDG_STATE_HOME nor HOME names a folder for detached runs");
  fs::create_directories(folder.parent_path(), error);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return errno_status(kExitCannotCreate, folder.string(), errno);
  struct stat status {};
  if (lstat(folder.c_str(), &status) != 0) return errno_status(kExitCannotCreate, folder.string(), errno);
  const bool is_ours = S_ISDIR(status.st_mode) && status.st_uid == geteuid() && (status.st_mode & 077) == 0;
  if (is_ours && access(folder.c_str(), W_OK) == 0) return {};
  return Status(kExitCannotCreate,
                folder.string() + ": must be a folder of yours that nobody else may use (chmod 700)");
}

fs::path detached_folder(const std::string& run_id, int node) {
  return state_folder() / "runs" / (run_id + "." + std::to_string(node));
}

Status make_detached_folder(const fs::path& folder) {
  const fs::path runs = folder.parent_path();
  for (const fs::path& one : {runs.parent_path(), runs, folder}) RETURN_IF_ERROR(make_private_folder(one));
  remove_old(runs);
  const Descriptor fd = open_to_read(folder / kExitCode);
  return fd.open() && lock_holder(fd.get()) ? in_use(folder) : Status();
}

Result<DetachedWriter> DetachedWriter::open(const fs::path& folder) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
  Descriptor exit_code(::open((folder / kExitCode).c_str(), kFlags, 0600));
  if (!exit_code.open()) return cannot_create(folder / kExitCode);
  if (!lock_whole(exit_code.get())) {
    if (errno == EAGAIN || errno == EACCES) return in_use(folder);
    return errno_status(kExitCannotCreate, (folder / kExitCode).string() + " cannot be locked", errno);
  }
  if (!write_exit_code(exit_code.get(), "")) return cannot_create(folder / kExitCode);
  Descriptor output(::open((folder / kOutput).c_str(), kFlags | O_TRUNC | O_APPEND, 0600));
  if (!output.open()) return cannot_create(folder / kOutput);
  return DetachedWriter(std::move(output), std::move(exit_code));
}

void DetachedWriter::finish(int exit_code) {
  const std::string code = std::to_string(exit_code);
  char last = '\n';
  if (const off_t size = lseek(output_.get(), 0, SEEK_END); size > 0) [[maybe_unused]]
    const ssize_t n = pread(output_.get(), &last, 1, size - 1);
  const std::string line = (last == '\n' ? "" : "\n") + ("dtrun: ended with exit code " + code + "\n");
  const bool is_cut = !write_all(output_.get(), line);
  write_exit_code(exit_code_.get(), code + (is_cut ? std::string(" ") + kCut : ""));
}

Result<DetachedReader> DetachedReader::open(const fs::path& folder) {
  Descriptor output = open_to_read(folder / kOutput);
  if (!output.open()) return errno_status(kExitNoInput, (folder / kOutput).string(), errno);
  Descriptor exit_code = open_to_read(folder / kExitCode);
  if (!exit_code.open()) return errno_status(kExitNoInput, (folder / kExitCode).string(), errno);
  return DetachedReader(std::move(output), std::move(exit_code));
}

std::string DetachedReader::next() {
  std::string bytes(kPortion, '\0');
  const ssize_t n = pread(output_.get(), bytes.data(), bytes.size(), static_cast<off_t>(read_));
  bytes.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  read_ += bytes.size();
  return bytes;
}

void DetachedReader::skip() {
  struct stat status {};
  if (fstat(output_.get(), &status) == 0) read_ = static_cast<std::uint64_t>(status.st_size);
}

std::optional<DetachedReader::End> DetachedReader::end() const {
  std::string text(kRoomForExitCode, ' ');
  if (pread(exit_code_.get(), text.data(), text.size(), 0) <= 0) return std::nullopt;
  std::istringstream words(text);
  End end;
  std::string rest;
  if (!(words >> end.exit_code)) return std::nullopt;
  end.is_cut = words >> rest && rest == kCut;
  return end;
}

std::optional<pid_t> DetachedReader::writer() const { return lock_holder(exit_code_.get()); }

void DetachedReader::signal_writer(int number) const {
  const std::optional<pid_t> pid = writer();
  if (!pid || *pid <= 0) return;
  const Descriptor process(agent::open_pidfd(*pid));
  if (process.open() && has_open(*pid, exit_code_.get()) && writer() == pid)
    agent::signal_pidfd(process.get(), number);
}

}  // namespace dtrun::cmd
