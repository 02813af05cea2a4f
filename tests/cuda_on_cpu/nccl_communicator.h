// A communicator of NCCL's stand-in: its state, and the messages that its groups enqueue.
#pragma once

#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "tests/cuda_on_cpu/nccl_links.h"
#include "tests/cuda_on_cpu/streams.h"

namespace cuda_on_cpu {

struct Message {
  int peer = 0;
  char* data = nullptr;
  std::size_t bytes = 0;
};

// The messages of one group, in one stream. Those to or from one rank are moved in their order.
struct Group {
  std::vector<Message> sends{}, receives{};
  cudaStream_t stream = nullptr;
};

// Stays where it is once it is aborted, so that a later use is known.
class Communicator {
 public:
  Communicator(int rank, int size, int device) : rank(rank), size(size), device(device) {}
  Communicator(const Communicator&) = delete;

  // Each goes on in a thread of its own, during which the state is ncclInProgress. One at a time.
  void begin_init(const ncclUniqueId& id, const std::string& gpu);
  void begin_launch(Group group);

  // The result of ncclCommGetAsyncError. `polls`: the job asks, which a launch waits for.
  ncclResult_t state(bool polls = false);
  // From any thread: the state from now on, unless it is an error already. Returns `error`; `why` is what
  // ncclGetLastError gives.
  ncclResult_t fail(ncclResult_t error, const std::string& why);

  // Ends what goes on, in whichever thread, and closes all connections.
  void abort();
  bool aborted() const { return aborted_; }
  bool ended() const { return ended_; }  // the abort has returned

  const int rank, size, device;

 private:
  friend class Transfer;
  void begin(std::function<ncclResult_t()> job);
  ncclResult_t init(const ncclUniqueId& id, const std::string& gpu);
  ncclResult_t launch(Group group);
  ncclResult_t connect(const Group& group);
  ncclResult_t wait_until_aborted();

  std::atomic<bool> aborted_ = false, ended_ = false;
  std::mutex mutex_;                 // guards all below
  std::condition_variable changed_;  // state_, job_runs_, polled_, and aborted_ when it is set
  ncclResult_t state_ = ncclSuccess;
  bool job_runs_ = false, polled_ = false;
  Point last_;  // of the communicator's operations
  // Used by the job's thread alone.
  std::vector<bool> connected_ = std::vector<bool>(static_cast<std::size_t>(size));
  std::uint64_t groups_ = 0;
  std::mutex links_mutex_;   // held while an operation is asked, and while links_ changes
  std::vector<Link> links_;  // by rank
};

// Returns `error`; `why` is what ncclGetLastError gives.
ncclResult_t nccl_error(ncclResult_t error, const std::string& why);
std::string nccl_last_error();

}  // namespace cuda_on_cpu
