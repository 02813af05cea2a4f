// Failures of NCCL in its stand-in: ranks that do not come, die or are silent, and aborts.
#include <barrier>
#include <cmath>
#include <string>
#include <thread>

#include "tests/cuda_on_cpu/nccl_ranks.h"

namespace {

using namespace cuda_on_cpu;

__global__ void scale(float* x, float by) { x[blockIdx.x * blockDim.x + threadIdx.x] *= by; }

TEST_CASE(
    "a rank that does not come, or comes with another id, leaves the others in progress until they abort") {
  const Gpus gpus(2);
  ncclConfig_t config = config_of(false);
  const ncclUniqueId old = fresh_id(), id = fresh_id();
  ncclComm_t comms[2] = {};
  for (int rank = 0; rank < 2; ++rank) {
    OK(cudaSetDevice(rank));
    CHECK(ncclCommInitRankConfig(&comms[rank], 2, rank == 0 ? old : id, rank, &config) == ncclInProgress);
  }
  for (ncclComm_t const comm : comms) CHECK(settled(comm, 50ms) == ncclInProgress);
  const OnDevice<float> x(1);
  CHECK(ncclSend(x.data(), 1, ncclFloat, 0, comms[0], nullptr) == ncclInvalidArgument);
  for (ncclComm_t const comm : comms) CHECK(ncclCommAbort(comm) == ncclSuccess);
}

TEST_CASE("an init that blocks is ended by an abort in another thread") {
  const Gpus gpus(2);
  ncclComm_t comm = nullptr;
  ncclResult_t result = ncclSuccess;
  nccl_plan.faults = nccl_faults_of("init-absent:0");
  std::thread blocked([&] {
    ncclConfig_t config = config_of(true);
    const ncclUniqueId id = fresh_id();
    result = ncclCommInitRankConfig(&comm, 1, id, 0, &config);
  });
  ncclComm_t made = nullptr;
  while (!made) made = __atomic_load_n(&comm, __ATOMIC_ACQUIRE);
  std::this_thread::sleep_for(20ms);
  CHECK(ncclCommAbort(made) == ncclSuccess);
  blocked.join();
  CHECK(result == ncclInternalError);
}

TEST_CASE("an abort ends a group that is not launched, and what is received is as it was") {
  const Gpus gpus(2);
  std::barrier both(2);
  run_ranks(2, [&](Rank& me) {
    const OnDevice<float> x(Floats(8, 1));
    // Rank 0 receives a message that is never sent, so the two do not even connect.
    if (me.rank == 0) me.must(ncclRecv(x.data(), 8, ncclFloat, 1, me.comm, me.stream) == ncclInProgress);
    me.must(settled(me.comm, 50ms) == (me.rank == 0 ? ncclInProgress : ncclSuccess));
    both.arrive_and_wait();
    me.abort();
    me.must(cudaStreamQuery(me.stream) == cudaSuccess);
    me.must(x.get() == Floats(8, 1));
  });
}

TEST_CASE("an abort ends an operation with NaN in all it was to receive, and what is behind it runs") {
  const Gpus gpus(2);
  nccl_plan.faults = nccl_faults_of("silent:0");
  const auto abort_under = [](Policy policy, bool begun) {
    settings.streams = policy;
    std::barrier both(2);
    run_ranks(2, [&](Rank& me) {
      constexpr int kCount = 64;
      const OnDevice<float> x(Floats(kCount, 1)), y(Floats(kCount, 1));
      ncclGroupStart();
      ncclRecv(x.data(), kCount, ncclFloat, 1 - me.rank, me.comm, me.stream);
      ncclSend(y.data(), kCount, ncclFloat, 1 - me.rank, me.comm, me.stream);
      me.must(me.end_group() == ncclSuccess);
      launch(scale, 1, kCount, 0, me.stream, y.data(), 2.0f);
      if (begun) me.must(cudaStreamQuery(me.stream) == cudaErrorNotReady);
      me.must(settled(me.comm) == ncclSuccess);
      both.arrive_and_wait();
      me.abort();
      for (const float value : x.get()) me.must(std::isnan(value));
      me.sync();
      me.must(y.get() == Floats(kCount, 2));
    });
  };
  for (const Policy policy : kPolicies) abort_under(policy, true);
  abort_under(Policy::kAsLateAsPossible, false);
}

TEST_CASE("a group that blocks to connect is ended by an abort in another thread") {
  const Gpus gpus(2);
  run_ranks(
      2,
      [](Rank& me) {
        if (me.rank == 1) return;
        const OnDevice<float> x(1);
        ncclResult_t ended = ncclSuccess;
        std::thread blocked([&, comm = me.comm] {
          cudaSetDevice(me.rank);
          ended = ncclRecv(x.data(), 1, ncclFloat, 1, comm, me.stream);
        });
        std::this_thread::sleep_for(20ms);
        me.abort();
        blocked.join();
        me.must(ended == ncclInternalError || ended == ncclRemoteError);
      },
      true);
}

TEST_CASE("a rank that is gone is noticed by some, by silence only by the others") {
  const Gpus gpus(3);
  std::vector<ncclResult_t> states(3);
  const auto lose_last = [&] {
    run_ranks(3, [&](Rank& me) {
      const OnDevice<float> x(Floats(3, 1)), y(Floats(3, 0));
      for (int round = 0; round < 2; ++round) {
        if (me.rank == 2 && round == 1) return;
        ncclGroupStart();
        for (int peer = 0; peer < me.size; ++peer) {
          if (peer == me.rank) continue;
          ncclSend(x.data(), 1, ncclFloat, peer, me.comm, me.stream);
          ncclRecv(y.data() + peer, 1, ncclFloat, peer, me.comm, me.stream);
        }
        me.must(me.end_group() == ncclSuccess);
        if (round == 0) me.sync();
      }
      const auto end = std::chrono::steady_clock::now() + 200ms;
      while (std::chrono::steady_clock::now() < end) me.must(cudaStreamQuery(me.stream) == cudaErrorNotReady);
      states[me.rank] = settled(me.comm);
      me.abort();
      me.sync();
      for (const float value : y.get()) me.must(std::isnan(value) || value == 0);
    });
  };
  lose_last();
  CHECK(states[0] == ncclSuccess);
  CHECK(states[1] == ncclRemoteError);
  nccl_plan.noticed = Deaths::kNone;
  lose_last();
  CHECK(states[1] == ncclSuccess);
  nccl_plan.noticed = Deaths::kAll;
  lose_last();
  CHECK(states[0] == ncclRemoteError);
}

TEST_CASE("planned faults of the init concern the rank that they name, or all") {
  const Gpus gpus(2);
  const auto states_with = [](const std::string& fault) {
    nccl_plan.faults = nccl_faults_of(fault);
    ncclConfig_t config = config_of(false);
    const ncclUniqueId id = fresh_id();
    std::vector<ncclComm_t> comms(2);
    std::vector<ncclResult_t> states;
    for (int rank = 0; rank < 2; ++rank) {
      OK(cudaSetDevice(rank));
      REQUIRE(ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config) == ncclInProgress);
    }
    for (ncclComm_t const comm : comms) states.push_back(settled(comm, 500ms));
    for (ncclComm_t const comm : comms) CHECK(ncclCommAbort(comm) == ncclSuccess);
    return states;
  };
  using States = std::vector<ncclResult_t>;
  CHECK(states_with("init-absent:1") == States{ncclInProgress, ncclInProgress});
  CHECK(states_with("init-stuck:1") == States{ncclSuccess, ncclInProgress});
  CHECK(states_with("init-fails:0:3") == States{ncclInternalError, ncclInProgress});
  CHECK(states_with("silent:0") == States{ncclSuccess, ncclSuccess});
}

TEST_CASE("planned faults of a group come with the group that they name") {
  const Gpus gpus(2);
  std::vector<int> done(2);
  std::vector<ncclResult_t> states(2);
  std::barrier both(2);
  cudaError_t broken = cudaSuccess;
  const auto run_with = [&](const std::string& fault) {
    nccl_plan.faults = nccl_faults_of(fault);
    done = {0, 0};
    run_ranks(2, [&](Rank& me) {
      const OnDevice<float> x(Floats(1, 1)), y(Floats(1, 0));
      for (; done[me.rank] < 5; ++done[me.rank]) {
        ncclGroupStart();
        ncclSend(x.data(), 1, ncclFloat, 1 - me.rank, me.comm, me.stream);
        ncclRecv(y.data(), 1, ncclFloat, 1 - me.rank, me.comm, me.stream);
        ncclGroupEnd();
        states[me.rank] = settled(me.comm, 500ms);
        if (states[me.rank] != ncclSuccess) break;
        const auto end = std::chrono::steady_clock::now() + 500ms;
        cudaError_t query = cudaErrorNotReady;
        while (query == cudaErrorNotReady && std::chrono::steady_clock::now() < end) {
          query = cudaStreamQuery(me.stream);
        }
        if (query != cudaSuccess) break;
      }
      if (states[me.rank] == ncclSuccess) states[me.rank] = settled(me.comm);
      both.arrive_and_wait();
      me.abort();
      if (me.rank == 0) broken = cudaPeekAtLastError();
      if (me.rank == 0) plan_faults({});  // else nothing can be given back
      both.arrive_and_wait();
    });
  };
  run_with("group-stuck:1@3");
  CHECK(done == std::vector<int>{2, 2});
  CHECK(states == std::vector<ncclResult_t>{ncclSuccess, ncclInProgress});
  run_with("silent:0@2");
  CHECK(done == std::vector<int>{1, 1});
  CHECK(states == std::vector<ncclResult_t>{ncclSuccess, ncclSuccess});
  run_with("async-error:0@4:2");
  CHECK(done == std::vector<int>{3, 3});
  CHECK(states == std::vector<ncclResult_t>{ncclSystemError, ncclSuccess});
  run_with("breaks-device:1@2:719");
  CHECK(done[1] == 1);
  CHECK(broken == cudaErrorLaunchFailure);
}

}  // namespace
