// NCCL's stand-in between threads of one process, each with a GPU of its own.
#include <nccl.h>

#include <barrier>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "tests/cuda_on_cpu/device_test.h"
#include "tests/cuda_on_cpu/nccl_plan.h"

namespace {

using namespace cuda_on_cpu;
using namespace std::chrono_literals;
using Floats = std::vector<float>;

constexpr Policy kPolicies[] = {Policy::kAtOnce, Policy::kAsLateAsPossible, Policy::kRandom};

__global__ void scale(float* x, float by) { x[blockIdx.x * blockDim.x + threadIdx.x] *= by; }

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
ncclResult_t settled(ncclComm_t comm, std::chrono::milliseconds limit = 20s) {
  const auto end = std::chrono::steady_clock::now() + limit;
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress && std::chrono::steady_clock::now() < end) {
    if (ncclCommGetAsyncError(comm, &state) != ncclSuccess) return ncclNumResults;
    if (state == ncclInProgress) std::this_thread::sleep_for(100us);
  }
  return state;
}

ncclConfig_t config_of(bool blocking) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking ? 1 : 0;
  return config;
}

ncclUniqueId fresh_id() {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  return id;
}

// What a rank's thread has. It ends with an abort, unless that was done, and with its own streams.
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
void run_ranks(int size, const Body& body, bool blocking = false, int ids = 1) {
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

float value_of(int from, int to, std::size_t i) {
  return static_cast<float>(1000 * from + 100 * to) + static_cast<float>(i % 89);
}

// Each rank sends each one, itself too, so many floats.
void exchange_all(Rank& me, const std::vector<std::size_t>& counts, int rounds) {
  std::size_t all = 0;
  for (const std::size_t count : counts) all += count;
  const auto size = static_cast<std::size_t>(me.size);
  const OnDevice<float> out(size * all), in(size * all);
  for (int round = 0; round < rounds; ++round) {
    Floats values(size * all);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = value_of(me.rank, static_cast<int>(i / all), i % all + static_cast<std::size_t>(round));
    }
    out.put(values);
    in.put(Floats(size * all, -1));
    ncclGroupStart();
    for (int peer = 0; peer < me.size; ++peer) {
      std::size_t at = static_cast<std::size_t>(peer) * all;
      for (const std::size_t count : counts) {
        me.must(ncclSend(out.data() + at, count, ncclFloat, peer, me.comm, me.stream) == ncclSuccess);
        me.must(ncclRecv(in.data() + at, count, ncclFloat, peer, me.comm, me.stream) == ncclSuccess);
        at += count;
      }
    }
    me.must(me.end_group() == ncclSuccess);
    me.sync();
    const Floats got = in.get();
    for (std::size_t i = 0; i < got.size(); ++i) {
      me.must(got[i] ==
              value_of(static_cast<int>(i / all), me.rank, i % all + static_cast<std::size_t>(round)));
    }
  }
}

TEST_CASE("bytes arrive in order, large, small and none, under every policy and order") {
  for (const Policy policy : kPolicies) {
    for (const std::uint64_t seed : {0, 1, 2, 3}) {
      CAPTURE(seed);
      const Gpus gpus(3);
      settings.streams = policy;
      settings.seed = seed + 1;
      nccl_plan.seed = seed;
      run_ranks(3, [](Rank& me) { exchange_all(me, {5, 0, 1000, 100000}, 3); });
    }
  }
}

TEST_CASE("communicators that block, and ranks that met by several ids") {
  const Gpus gpus(4);
  run_ranks(
      4,
      [](Rank& me) {
        exchange_all(me, {7, 300}, 2);
      },
      true);
  run_ranks(
      4,
      [](Rank& me) {
        exchange_all(me, {7, 300}, 2);
      },
      false, 3);
}

// Two ranks: the first scales its numbers in one stream and sends them in another. What the second has then.
Floats sent_behind_scaling(bool waits) {
  Floats got;
  run_ranks(2, [&](Rank& me) {
    constexpr int kCount = 64;
    const OnDevice<float> x(Floats(kCount, me.rank == 0 ? 2.0f : 0.0f));
    cudaEvent_t scaled = nullptr;
    me.must(cudaEventCreateWithFlags(&scaled, cudaEventDisableTiming) == cudaSuccess);
    if (me.rank == 0) launch(scale, 1, kCount, 0, me.compute, x.data(), 3.0f);
    me.must(cudaEventRecord(scaled, me.compute) == cudaSuccess);
    if (waits) me.must(cudaStreamWaitEvent(me.stream, scaled) == cudaSuccess);
    if (me.rank == 0) {
      ncclSend(x.data(), kCount, ncclFloat, 1, me.comm, me.stream);
    } else {
      ncclRecv(x.data(), kCount, ncclFloat, 0, me.comm, me.stream);
    }
    me.must(settled(me.comm) == ncclSuccess);
    me.sync();
    if (me.rank == 1) got = x.get();
    me.must(cudaDeviceSynchronize() == cudaSuccess);
    me.must(cudaEventDestroy(scaled) == cudaSuccess);
  });
  return got;
}

TEST_CASE("what is sent is read when its stream gets there: a missing event wait sends old numbers") {
  const Gpus gpus(2);
  for (const Policy policy : kPolicies) {
    settings.streams = policy;
    CHECK(sent_behind_scaling(true) == Floats(64, 6));
  }
  settings.streams = Policy::kAsLateAsPossible;
  for (int i = 0; i < 5; ++i) CHECK(sent_behind_scaling(false) == Floats(64, 2));
}

// The second rank copies what it received in another stream, behind an event that it recorded.
Floats copied_behind_receive(bool looks_for_launch) {
  Floats got;
  run_ranks(2, [&](Rank& me) {
    constexpr std::size_t kCount = 64;
    const OnDevice<float> x(Floats(kCount, me.rank == 0 ? 2.0f : 0.0f)), y(Floats(kCount, -1));
    const std::size_t bytes = kCount * sizeof(float);
    cudaEvent_t received = nullptr;
    me.must(cudaEventCreateWithFlags(&received, cudaEventDisableTiming) == cudaSuccess);
    ncclGroupStart();
    if (me.rank == 0) {
      ncclSend(x.data(), kCount, ncclFloat, 1, me.comm, me.stream);
    } else {
      ncclRecv(x.data(), kCount, ncclFloat, 0, me.comm, me.stream);
    }
    me.must(ncclGroupEnd() == ncclInProgress);
    if (looks_for_launch) me.must(settled(me.comm) == ncclSuccess);
    me.must(cudaEventRecord(received, me.stream) == cudaSuccess);
    me.must(cudaStreamWaitEvent(me.compute, received) == cudaSuccess);
    me.must(cudaMemcpyAsync(y.data(), x.data(), bytes, cudaMemcpyDeviceToDevice, me.compute) == cudaSuccess);
    me.must(cudaStreamSynchronize(me.compute) == cudaSuccess);
    if (me.rank == 1) got = y.get();
    me.must(settled(me.comm) == ncclSuccess);
    me.sync();
    me.must(cudaEventDestroy(received) == cudaSuccess);
  });
  return got;
}

TEST_CASE("a group is launched after ncclGroupEnd: an event recorded before the state says so is no event") {
  const Gpus gpus(2);
  for (const Policy policy : kPolicies) {
    settings.streams = policy;
    CHECK(copied_behind_receive(true) == Floats(64, 2));
  }
  settings.streams = Policy::kAsLateAsPossible;
  for (int i = 0; i < 5; ++i) CHECK(copied_behind_receive(false) == Floats(64, 0));
}

TEST_CASE("a communicator's groups are one after another, in whichever streams they are") {
  const Gpus gpus(2);
  run_ranks(2, [](Rank& me) {
    const OnDevice<float> x(Floats(1, me.rank == 0 ? 5.0f : 0.0f)), back(Floats(1, 0));
    if (me.rank == 0) {
      ncclSend(x.data(), 1, ncclFloat, 1, me.comm, me.stream);
      me.must(settled(me.comm) == ncclSuccess);
      ncclRecv(back.data(), 1, ncclFloat, 1, me.comm, me.compute);
    } else {
      ncclRecv(x.data(), 1, ncclFloat, 0, me.comm, me.stream);
      me.must(settled(me.comm) == ncclSuccess);
      ncclSend(x.data(), 1, ncclFloat, 0, me.comm, me.compute);
    }
    me.must(settled(me.comm) == ncclSuccess);
    me.must(cudaStreamSynchronize(me.compute) == cudaSuccess);
    me.must(me.rank == 1 || back.get()[0] == 5);
  });
}

// The sums of a ring, in its order.
Floats ring_sum(const std::vector<Floats>& values) {
  const std::size_t ranks = values.size(), count = values[0].size();
  Floats sums(count);
  for (std::size_t part = 0; part < ranks; ++part) {
    for (std::size_t i = count * part / ranks; i < count * (part + 1) / ranks; ++i) {
      sums[i] = values[part][i];
      for (std::size_t k = 1; k < ranks; ++k) sums[i] += values[(part + k) % ranks][i];
    }
  }
  return sums;
}

TEST_CASE("an all-reduce adds in an order that depends on the number of ranks, the same on each") {
  const Gpus gpus(4);
  constexpr std::size_t kCount = 1001;
  for (const int size : {1, 2, 3, 4}) {
    for (const bool in_place : {false, true}) {
      std::vector<Floats> values(static_cast<std::size_t>(size)), sums(values.size());
      for (std::size_t r = 0; r < values.size(); ++r) {
        for (std::size_t i = 0; i < kCount; ++i) {
          values[r].push_back(std::sin(static_cast<float>(i * 7 + r * 1000)) * (r % 2 == 0 ? 1000.0f : 1.0f));
        }
      }
      run_ranks(size, [&](Rank& me) {
        const OnDevice<float> x(values[me.rank]), y(kCount);
        float* const to = in_place ? x.data() : y.data();
        const ncclResult_t begun =
            ncclAllReduce(x.data(), to, kCount, ncclFloat, ncclSum, me.comm, me.stream);
        me.must(begun == ncclInProgress && settled(me.comm) == ncclSuccess);
        me.sync();
        sums[me.rank] = (in_place ? x : y).get();
      });
      for (const Floats& sum : sums) CHECK(sum == ring_sum(values));
    }
  }
}

TEST_CASE("sizes that differ are an error that names both, and the operation does not end") {
  const Gpus gpus(2);
  std::string error;
  run_ranks(2, [&](Rank& me) {
    const OnDevice<float> x(Floats(4, 1));
    if (me.rank == 0) {
      ncclSend(x.data(), 2, ncclFloat, 1, me.comm, me.stream);
    } else {
      ncclRecv(x.data(), 4, ncclFloat, 0, me.comm, me.stream);
    }
    me.must(settled(me.comm) == ncclSuccess);
    if (me.rank == 0) return me.sync();
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess) {
      me.must(cudaStreamQuery(me.stream) == cudaErrorNotReady);
      me.must(ncclCommGetAsyncError(me.comm, &state) == ncclSuccess);
    }
    me.must(state == ncclInvalidUsage);
    error = ncclGetLastError(me.comm);
    me.abort();  // while there is what it writes to
  });
  CHECK(error == "rank 1 receives 16 bytes from rank 0 in its group 1, which sends 8 in its group 1");
}

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
    // Rank 0 receives what nobody sends, so the two do not even connect.
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
  for (const Policy policy : kPolicies) {
    settings.streams = policy;
    nccl_plan.faults = nccl_faults_of("silent:0");
    std::barrier both(2);
    run_ranks(2, [&](Rank& me) {
      constexpr int kCount = 64;
      const OnDevice<float> x(Floats(kCount, 1)), y(Floats(kCount, 1));
      ncclGroupStart();
      ncclRecv(x.data(), kCount, ncclFloat, 1 - me.rank, me.comm, me.stream);
      ncclSend(y.data(), kCount, ncclFloat, 1 - me.rank, me.comm, me.stream);
      me.must(me.end_group() == ncclSuccess);
      launch(scale, 1, kCount, 0, me.stream, y.data(), 2.0f);
      me.must(cudaStreamQuery(me.stream) == cudaErrorNotReady);
      me.must(settled(me.comm) == ncclSuccess);
      both.arrive_and_wait();
      me.abort();
      me.sync();
      for (const float value : x.get()) me.must(std::isnan(value));
      me.must(y.get() == Floats(kCount, 2));
    });
  }
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

TEST_CASE("what the real library refuses is refused, with its error") {
  const Gpus gpus(2);
  run_ranks(2, [](Rank& me) {
    const OnDevice<float> x(4);
    const auto send = [&](const void* data, std::size_t count, int peer) {
      return ncclSend(data, count, ncclFloat, peer, me.comm, me.stream);
    };
    ncclComm_t none = nullptr;
    ncclConfig_t config = config_of(false), unset{};
    const ncclUniqueId id = fresh_id();
    me.must(ncclGroupEnd() == ncclInvalidUsage);
    me.must(ncclSend(x.data(), 1, ncclFloat, 0, nullptr, me.stream) == ncclInvalidArgument);
    me.must(ncclCommInitRankConfig(&none, 2, id, 2, &config) == ncclInvalidArgument);
    me.must(ncclCommInitRankConfig(&none, 2, id, 0, &unset) == ncclInvalidArgument);
    me.must(ncclCommInitRankConfig(&none, 2, id, 0, &config) == ncclInvalidUsage);  // has one
    me.must(none == nullptr);
    ncclGroupStart();
    me.must(ncclCommAbort(me.comm) == ncclInvalidUsage);
    me.must(ncclGroupEnd() == ncclInvalidUsage);
    // From here on the communicator is lost each time.
    me.must(send(x.data(), 1, 2) == ncclInvalidArgument);
    me.must(send(x.data(), 1, 0) == ncclInvalidArgument);
    me.must(std::string(ncclGetLastError(me.comm)).find("invalid root 2") != std::string::npos);
  });
  const auto refused = [](const std::function<ncclResult_t(Rank&, float*)>& call, ncclResult_t with) {
    run_ranks(2, [&](Rank& me) {
      const OnDevice<float> x(4);
      me.must(call(me, x.data()) == with);
    });
  };
  refused(
      [](Rank& me, float*) {
        Floats on_host(4);
        return ncclSend(on_host.data(), 1, ncclFloat, 1 - me.rank, me.comm, me.stream);
      },
      ncclInvalidArgument);
  refused([](Rank& me, float* x) { return ncclSend(x, 5, ncclFloat, 1 - me.rank, me.comm, me.stream); },
          ncclInvalidArgument);
  refused([](Rank& me, float* x) { return ncclSend(x, 1, ncclFloat, me.rank, me.comm, me.stream); },
          ncclInvalidUsage);
  refused(
      [](Rank& me, float* x) {  // a stream of the other device
        cudaSetDevice(1 - me.rank);
        cudaStream_t wrong = nullptr;
        cudaStreamCreate(&wrong);
        cudaSetDevice(me.rank);
        ncclGroupStart();
        ncclSend(x, 1, ncclFloat, 1 - me.rank, me.comm, wrong);
        ncclRecv(x, 1, ncclFloat, 1 - me.rank, me.comm, wrong);
        const ncclResult_t result = me.end_group();
        cudaStreamDestroy(wrong);
        return result;
      },
      ncclUnhandledCudaError);
  refused(
      [](Rank& me, float*) {  // memory of the other device
        float* wrong = nullptr;
        cudaSetDevice(1 - me.rank);
        cudaMalloc(reinterpret_cast<void**>(&wrong), 16);
        cudaSetDevice(me.rank);
        const ncclResult_t result = ncclSend(wrong, 1, ncclFloat, 1 - me.rank, me.comm, me.stream);
        cudaFree(wrong);
        return result;
      },
      ncclInvalidArgument);
}

TEST_CASE("a communicator that is ended without an abort has done all its work") {
  const Gpus gpus(2);
  run_ranks(2, [](Rank& me) {
    const OnDevice<float> x(Floats(1, static_cast<float>(me.rank))), y(1);
    ncclGroupStart();
    ncclSend(x.data(), 1, ncclFloat, 1 - me.rank, me.comm, me.stream);
    ncclRecv(y.data(), 1, ncclFloat, 1 - me.rank, me.comm, me.stream);
    me.must(ncclGroupEnd() == ncclInProgress);
    me.must(ncclCommFinalize(me.comm) == ncclInvalidArgument);  // it is in progress
    me.must(settled(me.comm) == ncclSuccess);
    me.must(ncclCommFinalize(me.comm) == ncclInProgress);
    me.must(settled(me.comm) == ncclSuccess);
    me.must(cudaStreamQuery(me.stream) == cudaSuccess);
    me.must(y.get()[0] == static_cast<float>(1 - me.rank));
    me.must(ncclCommDestroy(std::exchange(me.comm, nullptr)) == ncclSuccess);
  });
}

TEST_CASE("two ranks on one GPU are refused") {
  const Gpus gpus(2);
  machine.gpus = {1, 1};
  ncclConfig_t config = config_of(false);
  const ncclUniqueId id = fresh_id();
  ncclComm_t comms[2] = {};
  for (int rank = 0; rank < 2; ++rank) {
    OK(cudaSetDevice(rank));
    CHECK(ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config) == ncclInProgress);
  }
  for (ncclComm_t const comm : comms) {
    CHECK(settled(comm) == ncclInvalidUsage);
    CHECK(ncclCommAbort(comm) == ncclSuccess);
  }
}

}  // namespace
