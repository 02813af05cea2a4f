// How the ranks of a communicator find each other, and what connects them: Unix sockets, between threads as
// between processes. Their names, which no file system knows, follow from the unique id.
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

// Between this rank and one other: messages of operations, and a byte each way once it is in use.
struct Link {
  Socket data, control;
};

struct Met {
  ncclResult_t result = ncclSuccess;
  std::string why{};          // it is not ncclSuccess
  std::vector<Link> links{};  // by rank; empty for itself
};

using Stop = std::function<bool()>;

// Waits until all ranks have come with the same id, or `stop` says so. No two may have the same `gpu`.
Met meet(const ncclUniqueId& id, int rank, int size, const std::string& gpu, const Stop& stop);

// Reads or writes all of `bytes`. False if `stop` says so or the other end is closed.
bool receive_all(const Socket& from, void* data, std::size_t bytes, const Stop& stop);
bool send_all(const Socket& to, const void* data, std::size_t bytes, const Stop& stop);

}  // namespace cuda_on_cpu
