// How the ranks of a communicator find each other: by the unique id, which names a socket of the process that
// made it.
#pragma once

#include <nccl.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace cuda_on_cpu {

// A file descriptor that it closes.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

// Between this rank and one other: messages of operations, and what ranks tell each other to set up.
struct Link {
  Socket data, control;
};

// Makes an id, and a thread that waits for the ranks that come with it, as the real one does: it is gone with
// this process. The sockets have names that no file system knows; if DTRUN_TEST_NCCL_FOLDER is set they lie
// there, so that processes in other network namespaces find them.
ncclResult_t make_unique_id(ncclUniqueId* id);

struct Newcomer {
  int rank = 0, size = 1;
  std::vector<ncclUniqueId> ids;
  std::string gpu;  // no other rank may have the same
};

struct Met {
  ncclResult_t result = ncclSuccess;
  std::string why;          // it is not ncclSuccess
  std::vector<Link> links;  // by rank, non-blocking; empty for itself
};

// Waits until all ranks have come with the same ids, or `stop` says so: then with ncclInternalError, as the
// real one. An id whose maker is gone, or that has been used, is tried for a minute.
Met meet(const Newcomer& newcomer, const std::function<bool()>& stop);

// Reads or writes all of `bytes`. False if `stop` (none: never) says so or the other end is closed.
bool receive_all(int fd, void* data, std::size_t bytes, const std::function<bool()>& stop);
bool send_all(int fd, const void* data, std::size_t bytes, const std::function<bool()>& stop);

}  // namespace cuda_on_cpu
