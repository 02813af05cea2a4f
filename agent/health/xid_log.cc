#include "agent/health/xid_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace dtrun::agent {
namespace {

// A GPU in trouble may fill the log.
constexpr std::size_t kMost = 1000;

}  // namespace

XidLog::XidLog(const std::filesystem::path& kernel_log)
    : log_(open(kernel_log.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (log_.open()) lseek(log_.get(), 0, SEEK_END);
}

// Each read gives one record; one that was overwritten before we came gives EPIPE.
const std::vector<Xid>& XidLog::read() {
  char record[8192];
  while (log_.open()) {
    const ssize_t n = ::read(log_.get(), record, sizeof record);
    if (n < 0 && (errno == EPIPE || errno == EINTR)) continue;
    if (n <= 0) break;
    const auto xid = xid_in({record, static_cast<std::size_t>(n)});
    if (xid && found_.size() < kMost) found_.push_back(*xid);
  }
  return found_;
}

}  // namespace dtrun::agent
