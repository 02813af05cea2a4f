#include "proto/base/framed_channel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace dtrun {

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == ENOTSOCK) n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

Portion read_portion(int fd, std::size_t at_most, FrameReader* frames) {
  char bytes[65536];
  const ssize_t n = read(fd, bytes, std::min(at_most, sizeof bytes));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return Portion::kNoneYet;
  if (n <= 0) return Portion::kEnd;
  frames->push({bytes, static_cast<std::size_t>(n)});
  return Portion::kBytes;
}

}  // namespace dtrun
