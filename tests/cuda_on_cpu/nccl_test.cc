// What keeps NCCL's stand-in honest, between ranks that are threads: messages are moved no earlier than their
// streams allow, lost ranks are silence, and what the real library refuses is refused.
#include <nccl.h>

#include <barrier>
#include <chrono>
#include <cmath>
#include <functional>
#include <latch>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cuda_on_cpu/device_test.h"
#include "tests/support/clock.h"

namespace dtrun::nccl_test {

namespace {

using namespace cuda_on_cpu;
using namespace std::chrono_literals;
using Floats = std::vector<float>;

// As it was, with this many GPUs of little memory meanwhile.
class Gpus : Restored {
 public:
  explicit Gpus(int count) {
    machine.gpus.clear();
    for (int gpu = 0; gpu < count; ++gpu) machine.gpus.push_back(gpu);
    machine.memory_bytes = std::size_t{64} << 20;
  }
};

// Until it is not in progress, or `limit` has passed.
ncclResult_t settled(ncclComm_t comm, std::chrono::milliseconds limit = 20s) {
  const dtrun::test::Patience patience(limit);
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress && !patience.is_over()) {
    if (ncclCommGetAsyncError(comm, &state) != ncclSuccess) return ncclNumResults;
    if (state == ncclInProgress) std::this_thread::sleep_for(100us);
  }
  return state;
}

ncclResult_t begin_init(ncclComm_t* comm, int size, const ncclUniqueId& id, int rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return ncclCommInitRankConfig(comm, size, id, rank, &config);
}

// The objects of a rank's thread.
struct Rank {
  int rank;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr, compute = nullptr;
  std::string wrong{};  // lines

  void must(bool what, int line = __builtin_LINE()) {
    if (!what) wrong += std::to_string(line) + " ";
  }
  void sync() { must(cudaStreamSynchronize(stream) == cudaSuccess); }
  bool still_works() const {
    const TestEvent event;
    return cudaEventRecord(event, stream) == cudaSuccess && cudaEventQuery(event) == cudaErrorNotReady;
  }
  void abort() { must(ncclCommAbort(std::exchange(comm, nullptr)) == ncclSuccess); }
  ncclResult_t send(const float* from, std::size_t count, int peer) const {
    return ncclSend(from, count, ncclFloat, peer, comm, stream);
  }
  ncclResult_t receive(float* to, std::size_t count, int peer) const {
    return ncclRecv(to, count, ncclFloat, peer, comm, stream);
  }
};

// `size` ranks that have met, each in a thread, and that abort in the end if `body` does not.
void run_ranks(int size, const std::function<void(Rank&)>& body) {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  std::vector<Rank> ranks;
  for (int r = 0; r < size; ++r) ranks.push_back({r});
  std::vector<std::thread> threads;
  for (Rank& me : ranks) {
    threads.emplace_back([&] {
      me.must(cudaSetDevice(me.rank) == cudaSuccess);
      me.must(cudaStreamCreateWithFlags(&me.stream, cudaStreamNonBlocking) == cudaSuccess);
      me.must(cudaStreamCreateWithFlags(&me.compute, cudaStreamNonBlocking) == cudaSuccess);
      me.must(begin_init(&me.comm, size, id, me.rank) == ncclInProgress);
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

__global__ void scale(float* x, float by) { x[blockIdx.x * blockDim.x + threadIdx.x] *= by; }

// What the second rank gets of numbers that the first scales in one stream and sends in another.
Floats sent_behind_scaling(bool waits) {
  Floats got;
  run_ranks(2, [&](Rank& me) {
    constexpr int kCount = 64;
    const OnDevice<float> x(Floats(kCount, me.rank == 0 ? 2.0f : 0.0f));
    {
      const TestEvent scaled;
      if (me.rank == 0) launch(scale, 1, kCount, 0, me.compute, x.data(), 3.0f);
      me.must(cudaEventRecord(scaled, me.compute) == cudaSuccess);
      if (waits) me.must(cudaStreamWaitEvent(me.stream, scaled) == cudaSuccess);
      (me.rank == 0) ? me.send(x.data(), kCount, 1) : me.receive(x.data(), kCount, 0);
      me.must(settled(me.comm) == ncclSuccess);
      me.sync();
    }
    if (me.rank == 1) got = x.get();
    me.must(cudaDeviceSynchronize() == cudaSuccess);
  });
  return got;
}

TEST_CASE("what is sent is read when its stream gets there: a missing event wait sends old numbers") {
  const Gpus gpus(2);
  CHECK(sent_behind_scaling(true) == Floats(64, 6));
  for (int i = 0; i < 5; ++i) CHECK(sent_behind_scaling(false) == Floats(64, 2));
}

// What the second rank has copied in another stream, behind an event that it recorded after the receive.
Floats copied_behind_receive(bool looks_for_launch) {
  Floats got;
  run_ranks(2, [&](Rank& me) {
    const OnDevice<float> x(Floats(1, me.rank == 0 ? 2.0f : 0.0f)), y(Floats(1, -1));
    const auto begin = [&](std::size_t count) {
      return me.rank == 0 ? me.send(x.data(), count, 1) : me.receive(x.data(), count, 0);
    };
    me.must(begin(0) == ncclInProgress && settled(me.comm) == ncclSuccess);  // they connect
    me.sync();
    me.must(begin(1) == ncclInProgress);
    if (looks_for_launch) me.must(settled(me.comm) == ncclSuccess);
    {
      const TestEvent received;
      me.must(cudaEventRecord(received, me.stream) == cudaSuccess);
      me.must(cudaStreamWaitEvent(me.compute, received) == cudaSuccess);
      me.must(cudaMemcpyAsync(y.data(), x.data(), 4, cudaMemcpyDeviceToDevice, me.compute) == cudaSuccess);
      me.must(cudaStreamSynchronize(me.compute) == cudaSuccess);
    }
    if (me.rank == 1) got = y.get();
    me.must(settled(me.comm) == ncclSuccess);
    me.sync();
  });
  return got;
}

TEST_CASE("a group is launched after ncclGroupEnd: an event recorded before the state says so is no event") {
  const Gpus gpus(2);
  CHECK(copied_behind_receive(true) == Floats(1, 2));
  settings.launch_latest = std::chrono::minutes(10);
  CHECK(copied_behind_receive(false) == Floats(1, 0));
}

TEST_CASE("an abort ends an operation with NaN in all it was to receive, and what is behind it runs") {
  const Gpus gpus(2);
  std::barrier both(2);
  run_ranks(2, [&](Rank& me) {
    const OnDevice<float> x(Floats(8, 1)), y(Floats(8, 1));
    if (me.rank == 0) {
      // The second message never comes.
      ncclGroupStart();
      me.receive(x.data(), 0, 1);
      me.receive(x.data(), 8, 1);
      ncclGroupEnd();
    } else {
      me.send(x.data(), 0, 0);
    }
    me.must(settled(me.comm) == ncclSuccess);
    launch(scale, 1, 8, 0, me.stream, y.data(), 2.0f);
    me.must(me.rank == 1 || me.still_works());
    both.arrive_and_wait();
    me.abort();
    me.sync();
    for (const float value : x.get()) me.must(std::isnan(value) == (me.rank == 0));
    me.must(y.get() == Floats(8, 2));
  });
}

TEST_CASE("a rank that does not come leaves the others in progress until they abort") {
  const Gpus gpus(1);
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclComm_t comm = nullptr;
  CHECK(begin_init(&comm, 2, id, 0) == ncclInProgress);
  CHECK(settled(comm, 50ms) == ncclInProgress);
  const OnDevice<float> x(1);
  CHECK(ncclSend(x.data(), 1, ncclFloat, 1, comm, nullptr) == ncclInvalidArgument);
  CHECK(ncclCommAbort(comm) == ncclSuccess);
}

TEST_CASE("a rank that is gone is noticed by ranks with odd numbers, and is silence to others") {
  const Gpus gpus(3);
  std::vector<ncclResult_t> states(3);
  std::latch noticed(1);
  run_ranks(3, [&](Rank& me) {
    const OnDevice<float> x(Floats(1, 1));
    const auto exchange = [&] {
      ncclGroupStart();
      if (me.rank == 2) {
        for (const int peer : {0, 1}) me.send(x.data(), 1, peer);
      } else {
        me.receive(x.data(), 1, 2);
      }
      me.must(ncclGroupEnd() == ncclInProgress && settled(me.comm) == ncclSuccess);
    };
    exchange();
    me.sync();
    if (me.rank == 2) return;
    exchange();
    ncclResult_t& state = states[static_cast<std::size_t>(me.rank)];
    while (me.rank == 1 ? state == ncclSuccess : !noticed.try_wait()) {
      me.must(me.still_works());
      me.must(ncclCommGetAsyncError(me.comm, &state) == ncclSuccess);
    }
    if (me.rank == 1) noticed.count_down();
    me.abort();
    me.sync();  // while there is what it writes to
  });
  CHECK(states == std::vector{ncclSuccess, ncclRemoteError, ncclSuccess});
}

TEST_CASE("sizes that differ are an error that names both, and the operation does not end") {
  const Gpus gpus(2);
  run_ranks(2, [&](Rank& me) {
    const OnDevice<float> x(Floats(4, 1));
    (me.rank == 0) ? me.send(x.data(), 2, 1) : me.receive(x.data(), 4, 0);
    me.must(settled(me.comm) == ncclSuccess);
    if (me.rank == 0) return me.sync();
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess) {
      me.must(me.still_works());
      me.must(ncclCommGetAsyncError(me.comm, &state) == ncclSuccess);
    }
    me.must(state == ncclInvalidUsage);
    me.must(
        std::string(ncclGetLastError(me.comm)).ends_with("bytes from rank 0 in its group 1, which sends 8"));
    me.abort();
    me.sync();  // while there is what it writes to
  });
}

TEST_CASE("what the real library refuses is refused, and the communicator is lost") {
  const Gpus gpus(2);
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
  const auto refused = [](const std::function<ncclResult_t(Rank&, float*)>& call) {
    run_ranks(2, [&](Rank& me) {
      const OnDevice<float> x(4);
      me.must(call(me, x.data()) == ncclInvalidArgument);
      me.must(settled(me.comm) == ncclInvalidArgument);
      me.must(me.send(x.data(), 1, 1 - me.rank) == ncclInvalidArgument);
    });
  };
  refused([](Rank& me, float* x) { return me.send(x, 1, 2); });
  refused([](Rank& me, float* x) { return me.send(x, 5, 1 - me.rank); });
  refused([](Rank& me, float*) { return me.send(Floats(1).data(), 1, 1 - me.rank); });
  refused([](Rank& me, float*) {  // memory of the other device
    float* wrong = nullptr;
    cudaSetDevice(1 - me.rank);
    cudaMalloc(reinterpret_cast<void**>(&wrong), 16);
    cudaSetDevice(me.rank);
    const ncclResult_t result = me.send(wrong, 1, 1 - me.rank);
    cudaFree(wrong);
    return result;
  });
}

TEST_CASE("two ranks on one GPU, or ranks that are none, are refused") {
  const Gpus gpus(2);
  machine.gpus = {1, 1};
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclComm_t comms[2] = {};
  CHECK(begin_init(&comms[0], 2, id, 2) == ncclInvalidArgument);
  for (int rank = 0; rank < 2; ++rank) {
    OK(cudaSetDevice(rank));
    CHECK(begin_init(&comms[rank], 2, id, rank) == ncclInProgress);
  }
  for (ncclComm_t const comm : comms) {
    CHECK(settled(comm) == ncclInvalidUsage);
    CHECK(ncclCommAbort(comm) == ncclSuccess);
  }
}

}  // namespace

}  // namespace dtrun::nccl_test
