// NCCL's stand-in between threads: delivery, order and refusals.
#include <cmath>
#include <cstdint>
#include <string>

#include "tests/cuda_on_cpu/nccl_ranks.h"

namespace {

using namespace cuda_on_cpu;

__global__ void scale(float* x, float by) { x[blockIdx.x * blockDim.x + threadIdx.x] *= by; }

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

// Two ranks: the first scales its numbers in one stream and sends them in another. Returns the values that
// the second rank has then.
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

// The second rank copies the received data in another stream, behind an event that it recorded.
Floats copied_behind_receive(bool looks_for_launch) {
  Floats got;
  run_ranks(2, [&](Rank& me) {
    constexpr std::size_t kCount = 64;
    const OnDevice<float> x(Floats(kCount, me.rank == 0 ? 2.0f : 0.0f)), y(Floats(kCount, -1));
    const std::size_t bytes = kCount * sizeof(float);
    cudaEvent_t received = nullptr;
    me.must(cudaEventCreateWithFlags(&received, cudaEventDisableTiming) == cudaSuccess);
    const auto begin = [&](std::size_t count) {
      return me.rank == 0 ? ncclSend(x.data(), count, ncclFloat, 1, me.comm, me.stream)
                          : ncclRecv(x.data(), count, ncclFloat, 0, me.comm, me.stream);
    };
    me.must(begin(0) == ncclInProgress);  // they connect
    me.must(settled(me.comm) == ncclSuccess);
    me.sync();
    me.must(begin(kCount) == ncclInProgress);
    if (looks_for_launch) me.must(settled(me.comm) == ncclSuccess);
    if (!looks_for_launch) std::this_thread::sleep_for(1ms);
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
  int old = 0;  // on a busy machine not each time
  for (int i = 0; i < 10; ++i) old += copied_behind_receive(false) == Floats(64, 0);
  CHECK(old > 5);
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

TEST_CASE("what the real library refuses is refused, with its error") {
  const Gpus gpus(2);
  run_ranks(2, [](Rank& me) {
    if (me.rank == 1) return;  // the last error is one for all ranks of a process
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
