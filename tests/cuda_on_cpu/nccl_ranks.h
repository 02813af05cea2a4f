// The common parts of tests of NCCL's stand-in: ranks that are threads of this process, each with a GPU of
// its own.
#pragma once

#include <nccl.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cuda_on_cpu/device_test.h"
#include "tests/cuda_on_cpu/nccl_plan.h"

namespace cuda_on_cpu {

using namespace std::chrono_literals;
using Floats = std::vector<float>;

inline constexpr Policy kPolicies[] = {Policy::kAtOnce, Policy::kAsLateAsPossible, Policy::kRandom};

// As it was, with this many GPUs of little memory meanwhile.
class Gpus : Restored {
 public:
  explicit Gpus(int count) {
    machine.gpus.clear();
    for (int gpu = 0; gpu < count; ++gpu) machine.gpus.push_back(gpu);
    machine.memory_bytes = std::size_t{64} << 20;
  }
  ~Gpus() {
    nccl_plan = before_;
    for (std::size_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
      CHECK(cudaSetDevice(static_cast<int>(gpu)) == cudaSuccess);
      CHECK(cudaDeviceSynchronize() == cudaSuccess);
    }
    CHECK(cudaSetDevice(0) == cudaSuccess);
  }

 private:
  const NcclPlan before_ = nccl_plan;
};

// Until it is not in progress, or `limit` has passed.
inline ncclResult_t settled(ncclComm_t comm, std::chrono::milliseconds limit = 20s) {
  const auto end = std::chrono::steady_clock::now() + limit;
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress && std::chrono::steady_clock::now() < end) {
    if (ncclCommGetAsyncError(comm, &state) != ncclSuccess) return ncclNumResults;
    if (state == ncclInProgress) std::this_thread::sleep_for(100us);
  }
  return state;
}

inline ncclConfig_t config_of(bool blocking) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking ? 1 : 0;
  return config;
}

inline ncclUniqueId fresh_id() {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  return id;
}

// The objects of a rank's thread. It ends with an abort, unless that was done, and with its own streams.
struct Rank {
  int rank, size;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr, compute = nullptr;

  std::string wrong{};  // lines
  void must(bool what, int line = __builtin_LINE()) {
    if (!what) wrong += std::to_string(line) + " ";
  }
  void sync() { must(cudaStreamSynchronize(stream) == cudaSuccess); }
  ncclResult_t end_group() {
    const ncclResult_t ended = ncclGroupEnd();
    return ended == ncclInProgress ? settled(comm) : ended;
  }
  void abort() { must(ncclCommAbort(std::exchange(comm, nullptr)) == ncclSuccess); }
};

using Body = std::function<void(Rank&)>;

// `size` ranks that met by one id for each of `ids`, each in a thread.
inline void run_ranks(int size, const Body& body, bool blocking = false, int ids = 1) {
  std::vector<ncclUniqueId> of_ids;
  for (int i = 0; i < ids; ++i) of_ids.push_back(fresh_id());
  std::vector<Rank> ranks;
  for (int r = 0; r < size; ++r) ranks.push_back({r, size});
  std::vector<std::thread> threads;
  for (Rank& me : ranks) {
    threads.emplace_back([&] {
      me.must(cudaSetDevice(me.rank) == cudaSuccess);
      me.must(cudaStreamCreateWithFlags(&me.stream, cudaStreamNonBlocking) == cudaSuccess);
      me.must(cudaStreamCreateWithFlags(&me.compute, cudaStreamNonBlocking) == cudaSuccess);
      ncclConfig_t config = config_of(blocking);
      std::vector<ncclUniqueId> mine = of_ids;
      const ncclResult_t begun = ncclCommInitRankScalable(&me.comm, size, me.rank, ids, mine.data(), &config);
      me.must(begun == (blocking ? ncclSuccess : ncclInProgress));
      me.must(settled(me.comm) == ncclSuccess);
      body(me);
      if (me.comm) me.abort();
      me.must(cudaStreamDestroy(me.stream) == cudaSuccess);
      me.must(cudaStreamDestroy(me.compute) == cudaSuccess);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Rank& rank : ranks) {
    CAPTURE(rank.rank);
    CHECK(rank.wrong == "");
  }
}

}  // namespace cuda_on_cpu
