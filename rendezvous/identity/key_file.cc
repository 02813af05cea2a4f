#include "rendezvous/identity/key_file.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string_view>

namespace dtrun::rendezvous {
namespace {

// A key is one line; a longer file is something else.
constexpr std::size_t kMostBytes = 4096;

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
  return fsync(fd) == 0;
}

// Beside `file`: a link must not leave its file system.
std::filesystem::path unfinished(const std::filesystem::path& file) {
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) number = static_cast<std::uint64_t>(getpid());
  return file.parent_path() / ("." + file.filename().string() + "-" + std::to_string(number));
}

// 0 once a whole key is at `file`, this process' or one of a faster process; else an errno. link() fails if
// the name is taken, on NFS too, and the file never appears half written.
int make_key(const std::filesystem::path& file) {
  const std::filesystem::path folder = file.parent_path();
  for (const std::filesystem::path& one : {folder.parent_path(), folder})
    if (mkdir(one.c_str(), 0700) != 0 && errno != EEXIST) return errno;
  const std::filesystem::path made = unfinished(file);
  const int fd = open(made.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return errno;
  std::string text = JobKey::random().text() + "\n";
  int error = write_all(fd, text) ? 0 : errno;
  OPENSSL_cleanse(text.data(), text.size());
  if (close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && link(made.c_str(), file.c_str()) != 0 && errno != EEXIST) error = errno;
  unlink(made.c_str());
  return error;
}

// A user that can write to the key file chooses which job this process joins.
Status check_file(const struct stat& facts, const std::string& what) {
  if (!S_ISREG(facts.st_mode)) return {};
  if (facts.st_uid != geteuid() && facts.st_uid != 0)
    return Status(kExitNoPermission, what + ": this key belongs to the user with the number " +
                                         std::to_string(facts.st_uid) +
                                         ": take a copy of your own (chmod 600)");
  if ((facts.st_mode & (S_IROTH | S_IWOTH)) != 0)
    return Status(kExitNoPermission, what + ": every user of this machine may " +
                                         ((facts.st_mode & S_IROTH) != 0 ? "read" : "write to") +
                                         " this key: chmod 600, and take a new one if that mattered");
  return {};
}

}  // namespace

Result<JobKey> read_key(int fd, const std::string& what) {
  struct stat facts {};
  std::array<char, kMostBytes + 1> bytes{};
  std::size_t size = 0;
  ssize_t got = fstat(fd, &facts);
  // The writer of a pipe may keep it open: one line is enough.
  while (got >= 0 && size < bytes.size() && std::string_view(bytes.data(), size).find('\n') == size_t(-1)) {
    got = read(fd, bytes.data() + size, bytes.size() - size);
    if (got < 0 && errno == EINTR)
      got = 0;
    else if (got <= 0)
      break;
    size += static_cast<std::size_t>(got);
  }
  const int error = errno;
  close(fd);
  if (got < 0) return errno_status(kExitNoInput, what, error);
  Result<JobKey> key =
      size > kMostBytes ? Result<JobKey>(Status(kExitNoPermission, what + ": this is no key, it is too long"))
                        : JobKey::parse({bytes.data(), size}, what);
  OPENSSL_cleanse(bytes.data(), bytes.size());
  const Status whose = check_file(facts, what);
  return whose.ok() ? std::move(key) : Result<JobKey>(whose);
}

Result<JobKey> read_key_file(const std::filesystem::path& file, const std::string& what,
                             std::chrono::milliseconds patience) {
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0) return errno_status(kExitNoInput, what, errno);
  pollfd writer{.fd = fd, .events = POLLIN, .revents = 0};
  if (poll(&writer, 1, static_cast<int>(patience.count())) == 0) {
    close(fd);
    return Status(kExitNoInput, what + ": it is a FIFO, and no key came through it within " +
                                    std::to_string(patience.count() / 1000) + " s");
  }
  fcntl(fd, F_SETFL, 0);
  return read_key(fd, what);
}

Result<JobKey> read_or_make_key(const std::filesystem::path& file) {
  if (access(file.c_str(), F_OK) != 0) {
    if (const int error = make_key(file); error != 0)
      return errno_status(kExitCannotCreate, file.string() + " cannot be made", error);
  }
  return read_key_file(file, file.string());
}

}  // namespace dtrun::rendezvous
