// A communicator of the stand-in: its state, and the work that it enqueues.
#pragma once

#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "tests/cuda_on_cpu/nccl_meeting.h"
#include "tests/cuda_on_cpu/streams.h"

namespace cuda_on_cpu {

// Part of an operation: bytes to or from one other rank.
struct Piece {
  int peer = 0;
  char* data = nullptr;
  std::size_t bytes = 0;
};

// The pieces that an operation moves before `then` runs on the devices' thread. Pieces to or from one rank
// are moved in their order.
struct Phase {
  std::vector<Piece> sends, receives;
  std::function<void()> then{};
};

// The work of one communicator for one group, in one stream.
struct Work {
  std::vector<Phase> phases;
  std::vector<Piece> results;  // filled with NaN if the work is aborted before it is done; `peer` is unused
  cudaStream_t stream = nullptr;
};

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  Communicator(int rank, int size, int device, bool blocking);

  // The result of ncclCommGetAsyncError. `poll`: the job asks, which a launch waits for.
  ncclResult_t state(bool poll = false);
  // From any thread: the state from now on, unless it is an error already.
  void fail(ncclResult_t error, const std::string& why);

  // Each goes on in a thread of its own, during which the state is ncclInProgress. One at a time.
  void begin_init(std::vector<ncclUniqueId> ids, std::string gpu);
  void begin_launch(Work work);
  void begin_finalize();
  ncclResult_t wait_for_job();  // gives the state then
  bool finalized();
  bool aborted() const { return aborted_; }

  // Ends what goes on, in whichever thread, and closes all connections.
  void abort();
  // Returns when its operations are done, which may be never.
  void destroy();

  const int rank, size, device;
  const bool blocking;

 private:
  friend class Transfer;
  void begin(std::function<ncclResult_t()> job);
  ncclResult_t init(const std::vector<ncclUniqueId>& ids, const std::string& gpu);
  ncclResult_t launch(Work work);
  ncclResult_t connect(const Work& work);
  ncclResult_t wait_until_aborted();
  void wait_before_launch();
  void wait_for_operations();
  void close();
  bool notices_deaths() const;
  std::uint64_t random(std::uint64_t below);

  std::atomic<bool> aborted_ = false;
  std::mutex mutex_;                 // guards all below
  std::condition_variable changed_;  // state_, job_runs_, polled_, and aborted_ when it is set
  ncclResult_t state_ = ncclSuccess;
  bool job_runs_ = false, polled_ = false, finalized_ = false;
  Point last_;  // of the communicator's operations
  std::mt19937_64 random_;
  // Used by the job's thread alone. The connections that each rank has set up to the other: to receive, to
  // send.
  struct Connected {
    bool mine[2] = {false, false}, theirs[2] = {false, false};
  };
  std::vector<Connected> connected_;
  std::uint64_t groups_ = 0;
  std::mutex links_mutex_;   // held while an operation is asked, and while links_ changes
  std::vector<Link> links_;  // by rank
};

// Returns `error`; `why` is what ncclGetLastError gives.
ncclResult_t nccl_error(ncclResult_t error, const std::string& why);
std::string nccl_last_error();

}  // namespace cuda_on_cpu
