#include "worker/metrics/patient_file.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "worker/base/error.h"

namespace dtrun::worker {

namespace {

constexpr std::size_t kMaxWaiting = 1 << 20;  // bytes: some thousand lines

}  // namespace

PatientFile::PatientFile(std::filesystem::path path, int fd, std::string noun, Notice notice)
    : path_(std::move(path)), fd_(fd), noun_(std::move(noun)), notice_(std::move(notice)) {}

PatientFile::~PatientFile() {
  lost_ += static_cast<std::int64_t>(waiting_.size());
  if (lost_ > 0)
    notice_(path_.string() + " lacks its last " + std::to_string(lost_) + " " + noun_ +
            (lost_ == 1 ? "" : "s"));
  close(fd_);
}

void PatientFile::append(std::string entry) {
  if (waiting_bytes_ < kMaxWaiting) {
    waiting_bytes_ += entry.size();
    waiting_.push_back(std::move(entry));
  } else {
    ++lost_;
  }
  const int error = write_waiting();
  if (error != 0 && !std::exchange(told_, true))
    notice_(cannot_write("cannot write " + path_.string(), error).what() + std::string("; its ") + noun_ +
            "s wait");
  if (error == 0 && std::exchange(told_, false)) notice_(path_.string() + " can be written again");
}

// 0, or errno.
int PatientFile::write_waiting() {
  while (!waiting_.empty()) {
    std::string& entry = waiting_.front();
    const ssize_t written = write(fd_, entry.data(), entry.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    const auto count = static_cast<std::size_t>(written);
    waiting_bytes_ -= count;
    if (count < entry.size()) {
      entry.erase(0, count);
      return ENOSPC;
    }
    waiting_.pop_front();
  }
  return 0;
}

}  // namespace dtrun::worker
