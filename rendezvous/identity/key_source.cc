#include "rendezvous/identity/key_source.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace dtrun::rendezvous {
namespace {

// A key is one line; what is longer is another file.
constexpr std::size_t kMostBytes = 4096;

Result<JobKey> key_in(const std::string& file, const std::string& source) {
  const std::string what = source + "=" + file;
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) return errno_status(kExitNoInput, what, errno);
  struct stat facts {};
  std::array<char, kMostBytes + 1> bytes{};
  std::size_t size = 0;
  ssize_t got = fstat(fd, &facts);
  while (got >= 0 && size < bytes.size()) {
    got = read(fd, bytes.data() + size, bytes.size() - size);
    if (got <= 0) break;
    size += static_cast<std::size_t>(got);
  }
  const int error = errno;
  close(fd);
  if (got < 0) return errno_status(kExitNoInput, what, error);
  if (S_ISREG(facts.st_mode) && (facts.st_mode & S_IROTH) != 0)
    return Status(kExitNoPermission, what + ": every user of this machine may read this key: chmod 600 " +
                                         file + ", and take a new one if that mattered");
  Result<JobKey> key =
      size > kMostBytes ? Result<JobKey>(Status(kExitNoPermission, what + ": this is no key, it is too long"))
                        : JobKey::parse({bytes.data(), size}, what);
  OPENSSL_cleanse(bytes.data(), bytes.size());
  return key;
}

}  // namespace

Result<std::optional<JobKey>> find_key(const std::string& file, const std::string& source, const char* text) {
  // As of a shell's variable that is not set: who asks for a key shall not run without one.
  if (file.empty() && source.starts_with("--"))
    return Status(kExitUsage, source + "=: expected the file of the job's key");
  if (file.empty() && (text == nullptr || *text == '\0')) return std::optional<JobKey>();
  Result<JobKey> key = file.empty() ? JobKey::parse(text, kTokenVariable) : key_in(file, source);
  if (!key.ok()) return key.status();
  return std::optional(std::move(key).value());
}

}  // namespace dtrun::rendezvous
