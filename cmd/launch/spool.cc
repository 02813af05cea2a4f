#include "cmd/launch/spool.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <system_error>
#include <utility>
#include <vector>

#include "agent/system/pidfd.h"
#include "proto/base/record_lock.h"

namespace dtrun::cmd {
namespace {

namespace fs = std::filesystem;

constexpr auto kKeepEnded = std::chrono::hours(30 * 24);
constexpr std::size_t kPortion = 1u << 20;
// On a full disk a job's last output gives way to the messages on its end; a report has a few KB.
constexpr std::uint64_t kRoomForEnd = 64u << 10;

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

void remove_old(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> old;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const auto written = fs::last_write_time(entry.path(), error);
    if (!error && fs::file_time_type::clock::now() - written > kKeepEnded) old.push_back(entry.path());
  }
  for (const fs::path& file : old) {
    const Descriptor fd(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (fd.open() && !lock_holder(fd.get())) unlink(file.c_str());
  }
}

bool append(int fd, std::string_view bytes) {
  const ssize_t n = write(fd, bytes.data(), bytes.size());
  return n >= 0 && static_cast<std::size_t>(n) == bytes.size();
}

struct Messages {
  std::deque<std::uint64_t> ends;  // bytes up to the end of each, of the last kRoomForEnd; ascending
  bool is_cut = false;             // more bytes follow, which are no whole message
};

// Through `fd`: a second open file of this process would take the lock with it when it closes.
Messages messages_of(int fd) {
  Messages found{.ends = {0}};
  FrameReader frames;
  std::string bytes(kPortion, '\0');
  std::uint64_t size = 0;
  for (ssize_t n = 0; (n = pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(size))) > 0;) {
    size += static_cast<std::uint64_t>(n);
    frames.push(std::string_view(bytes).substr(0, static_cast<std::size_t>(n)));
    while (frames.next().value()) found.ends.push_back(size - frames.pending());
    while (found.ends.size() > 1 && size - found.ends.front() > kRoomForEnd) found.ends.pop_front();
  }
  found.is_cut = frames.pending() > 0;
  return found;
}

Status in_use(const SpoolPlace& place) {
  return Status(kExitCannotCreate, place.file.string() + ": a detached run of this name goes on here");
}

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

SpoolPlace spool_place(const std::string& run_id, int node) {
  const fs::path stem = state_folder() / "runs" / (run_id + "." + std::to_string(node));
  return {.file = stem.string() + ".spool", .words = stem.string() + ".err"};
}

Status make_spool_folder(const SpoolPlace& place) {
  const fs::path folder = place.file.parent_path();
  Status status = make_private_folder(folder.parent_path());
  if (status.ok()) status = make_private_folder(folder);
  if (!status.ok()) return status;
  remove_old(folder);
  const Descriptor fd(open(place.file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  return fd.open() && lock_holder(fd.get()) ? in_use(place) : Status();
}

Result<SpoolWriter> SpoolWriter::open(const SpoolPlace& place) {
  Descriptor fd(::open(place.file.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.open()) return errno_status(kExitCannotCreate, place.file.string(), errno);
  if (!lock_whole(fd.get())) {
    if (errno == EAGAIN || errno == EACCES) return in_use(place);
    return errno_status(kExitCannotCreate, place.file.string() + " cannot be locked", errno);
  }
  if (ftruncate(fd.get(), 0) != 0) return errno_status(kExitCannotCreate, place.file.string(), errno);
  return SpoolWriter(std::move(fd));
}

void SpoolWriter::finish(const launch::FromHost& ended) {
  const Messages before = messages_of(fd_.get());
  const std::string last = frame_of(ended);
  if (!before.is_cut && append(fd_.get(), last)) return;
  launch::FromHost lost;
  lost.mutable_said()->set_text("the disk was full: what was said from here on is lost");
  const std::string with_loss = frame_of(lost) + last;
  for (auto end = before.ends.rbegin(); end != before.ends.rend(); ++end) {
    if (ftruncate(fd_.get(), static_cast<off_t>(*end)) != 0 || append(fd_.get(), with_loss)) return;
  }
}

Result<SpoolReader> SpoolReader::open(const SpoolPlace& place) {
  Descriptor fd(::open(place.file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (fd.open()) return SpoolReader(std::move(fd));
  return errno_status(kExitNoInput, place.file.string(), errno);
}

std::optional<launch::FromHost> SpoolReader::next() {
  for (;;) {
    auto message = messages_.next();
    if (message.ok() && message.value()) {
      position_ = read_ - messages_.pending();
      return std::move(message).value();
    }
    std::string bytes(kPortion, '\0');
    const ssize_t n =
        message.ok() ? pread(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(read_)) : 0;
    if (n <= 0) {
      // The rest is read again: on a full disk finish() may put something else there.
      start_at(position_);
      return std::nullopt;
    }
    read_ += static_cast<std::uint64_t>(n);
    messages_.push(std::string_view(bytes).substr(0, static_cast<std::size_t>(n)));
  }
}

void SpoolReader::start_at(std::uint64_t position) {
  messages_ = {};
  read_ = position_ = position;
}

std::optional<launch::FromHost> SpoolReader::ended() {
  start_at(0);
  for (auto message = next(); message; message = next())
    if (message->has_ended()) return message;
  return std::nullopt;
}

std::uint64_t SpoolReader::size() const {
  struct stat status {};
  return fstat(fd_.get(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

std::optional<pid_t> SpoolReader::writer() const { return lock_holder(fd_.get()); }

bool SpoolReader::signal_writer(int number) const {
  const std::optional<pid_t> pid = writer();
  if (!pid || *pid <= 0) return false;
  const Descriptor process(agent::open_pidfd(*pid));
  return process.open() && has_open(*pid, fd_.get()) && writer() == pid &&
         agent::signal_pidfd(process.get(), number);
}

}  // namespace dtrun::cmd
