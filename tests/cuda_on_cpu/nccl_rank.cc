// One rank in a process of its own: nccl_rank WHAT RANK SIZE [ID]. Rank 0 makes the id and prints it; the
// others are given it. Rank N has GPU N. Prints its observations, a line each.
#include <cuda_on_cpu.h>
#include <nccl.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using Floats = std::vector<float>;

constexpr std::size_t kCount = 100000;

void must(bool what, const char* text) {
  if (what) return;
  std::printf("not so: %s (%s)\n", text, ncclGetLastError(nullptr));
  std::exit(3);
}
#define MUST(what) must(what, #what)

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

ncclUniqueId id_of(const std::string& hex) {
  ncclUniqueId id;
  for (std::size_t i = 0; i < sizeof id; ++i) {
    id.internal[i] = static_cast<char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  }
  return id;
}

std::string hex_of(const ncclUniqueId& id) {
  std::string hex;
  for (const char c : id.internal) {
    char byte[3];
    std::snprintf(byte, sizeof byte, "%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    hex += byte;
  }
  return hex;
}

struct Rank {
  int rank, size;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float *out = nullptr, *in = nullptr;  // kCount for each rank

  ncclResult_t settled(std::chrono::milliseconds limit = 20s) const {
    const auto end = std::chrono::steady_clock::now() + limit;
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress && std::chrono::steady_clock::now() < end) {
      MUST(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
      if (state == ncclInProgress) std::this_thread::sleep_for(100us);
    }
    return state;
  }

  void meet(const ncclUniqueId& id) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    MUST(ncclCommInitRankConfig(&comm, size, id, rank, &config) == ncclInProgress);
    MUST(settled() == ncclSuccess);
  }

  float sent(int from, int to, int round) const { return static_cast<float>(1000 * round + 10 * from + to); }

  void begin_exchange(int round) const {
    Floats values(kCount * static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = sent(rank, static_cast<int>(i / kCount), round);
    }
    MUST(cudaMemcpyAsync(out, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice, stream) ==
         cudaSuccess);
    ncclGroupStart();
    for (int peer = 0; peer < size; ++peer) {
      const std::size_t at = static_cast<std::size_t>(peer) * kCount;
      MUST(ncclSend(out + at, kCount, ncclFloat, peer, comm, stream) == ncclSuccess);
      MUST(ncclRecv(in + at, kCount, ncclFloat, peer, comm, stream) == ncclSuccess);
    }
    MUST(ncclGroupEnd() == ncclInProgress);
  }

  Floats received() const {
    Floats values(kCount * static_cast<std::size_t>(size));
    MUST(cudaMemcpyAsync(values.data(), in, values.size() * sizeof(float), cudaMemcpyDeviceToHost, stream) ==
         cudaSuccess);
    MUST(cudaStreamSynchronize(stream) == cudaSuccess);
    return values;
  }

  void exchange(int round) const {
    begin_exchange(round);
    MUST(settled() == ncclSuccess);
    const Floats values = received();
    for (std::size_t i = 0; i < values.size(); ++i) {
      MUST(values[i] == sent(static_cast<int>(i / kCount), rank, round));
    }
  }

  void abort() { MUST(ncclCommAbort(std::exchange(comm, nullptr)) == ncclSuccess); }
};

void exchange(Rank& me) {
  for (int round = 0; round < 5; ++round) me.exchange(round);
  me.abort();
  say("right");
}

// Waits until nothing arrives any more; prints the state then, and the memory after the abort.
void exchange_until_silence(Rank& me) {
  for (int round = 0;; ++round) {
    me.begin_exchange(round);
    const auto end = std::chrono::steady_clock::now() + 2s;
    bool done = false;
    while (!done && std::chrono::steady_clock::now() < end) {
      done = me.settled(1s) == ncclSuccess && cudaStreamQuery(me.stream) == cudaSuccess;
    }
    if (done) {
      if (round == 0) say("exchanges");
      continue;
    }
    say("round " + std::to_string(round) + " does not end");
    say("state " + std::to_string(me.settled(10ms)));
    break;
  }
  me.abort();
  std::size_t nans = 0;
  for (const float value : me.received()) nans += std::isnan(value);
  say(nans == 0 ? "numbers" : "NaN");
}

void nothing(Rank& me) {
  say("met");
  std::this_thread::sleep_for(60s);
  me.abort();
}

void abort_and_say(Rank& me) {
  say("aborting");
  me.abort();
  say("aborted");
}

const std::map<std::string, std::function<void(Rank&)>> kWhat = {
    {"exchange", exchange},
    {"until-silence", exchange_until_silence},
    {"nothing", nothing},
    {"abort", abort_and_say},
    {"abort-twice",
     [](Rank& me) {
       ncclComm_t const comm = me.comm;
       me.abort();
       ncclCommAbort(comm);
     }},
    {"use-after-abort",
     [](Rank& me) {
       ncclComm_t const comm = me.comm;
       me.abort();
       ncclResult_t state = ncclSuccess;
       ncclCommGetAsyncError(comm, &state);
     }},
    {"abort-while-launching",
     [](Rank& me) {
       me.begin_exchange(0);
       abort_and_say(me);
     }},
    {"open-group", [](Rank&) { std::thread([] { ncclGroupStart(); }).join(); }},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || kWhat.count(argv[1]) == 0) {
    std::fprintf(stderr, "nccl_rank: what?\n");
    return 2;
  }
  Rank me{std::atoi(argv[2]), std::atoi(argv[3])};
  ncclUniqueId id;
  if (argc > 4) {
    id = id_of(argv[4]);
  } else {
    MUST(ncclGetUniqueId(&id) == ncclSuccess);
    say("id " + hex_of(id) + " .");
  }
  MUST(cudaSetDevice(me.rank) == cudaSuccess);
  MUST(cudaStreamCreateWithFlags(&me.stream, cudaStreamNonBlocking) == cudaSuccess);
  const std::size_t bytes = kCount * sizeof(float) * static_cast<std::size_t>(me.size);
  MUST(cudaMalloc(reinterpret_cast<void**>(&me.out), bytes) == cudaSuccess);
  MUST(cudaMalloc(reinterpret_cast<void**>(&me.in), bytes) == cudaSuccess);
  me.meet(id);
  kWhat.at(argv[1])(me);
  say("done");
}
