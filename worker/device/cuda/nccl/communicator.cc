#include "worker/device/cuda/nccl/communicator.h"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/base/log.h"
#include "proto/core/exit_codes.h"
#include "worker/base/error.h"
#include "worker/base/host_identity.h"
#include "worker/base/pulse.h"
#include "worker/device/cuda/failure.h"
#include "worker/device/cuda/libraries/nccl.h"
#include "worker/device/cuda/nccl/bootstrap.h"
#include "worker/device/cuda/stream.h"

namespace dtrun::worker::cuda {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// The limit for ncclCommAbort; published measurements of it: 0.5 s, and 10 ms for each kernel that waits.
constexpr std::chrono::seconds kAbortPatience{3};
// Most waits are short: the launch of a group by a thread of NCCL's takes about 0.1 ms, as long as one sleep
// costs. A wait of ten times that waits for a peer.
constexpr milliseconds kAwake{1};
// The ranks per id: all of them connect to the rank that made the id.
constexpr int kRanksOfId = 64;

// The host's identity in NCCL's view.
std::string host_of_nccl() {
  const char* const said = std::getenv("NCCL_HOSTID");
  return said != nullptr && *said != '\0' ? said : host_identity();
}

class NcclLinks final : public DeviceCommunicator {
 public:
  NcclLinks(const Nccl& library, int gpu, const CommunicatorBootstrap& peers,
            const std::vector<BootstrapInfo>& cards)
      : library_(library), gpu_(gpu), peers_(peers) {
    for (const BootstrapInfo& card : cards) hosts_.emplace_back(card.host.data());
    use_gpu(gpu_);
    check(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming), "making an event");
    try {
      meet(cards);
    } catch (...) {
      give_up();
      throw;
    }
  }
  ~NcclLinks() override { give_up(); }
  NcclLinks(const NcclLinks&) = delete;

  const std::vector<std::string>& hosts() const override { return hosts_; }

  void exchange(Stream& stream, std::span<const OutFloats> out, std::span<const InFloats> in) override {
    auto* const on = dynamic_cast<CudaStream&>(stream).handle();
    as_group([&](const auto& add) {
      for (const OutFloats& each : out)
        add(library_.send(each.floats, each.count, ncclFloat, each.peer, communicator_, on));
      for (const InFloats& each : in)
        add(library_.recv(each.floats, each.count, ncclFloat, each.peer, communicator_, on));
    });
  }

  // Checks the event and NCCL in turn: a kernel that waits for a lost peer does not end by itself.
  void wait(Stream& stream) override {
    auto* const on = dynamic_cast<CudaStream&>(stream).handle();
    check(cudaEventRecord(done_, on), "recording an event");
    Patience patience(peers_, peers_.patience);
    for (;;) {
      const cudaError_t state = cudaEventQuery(done_);
      if (state != cudaErrorNotReady) {
        check(state, "exchanging gradients");
        // The kernels of a failed communicator end as if they had done their work, so its state is checked
        // too.
        accept(state_of_communicator());
        return;
      }
      cudaGetLastError();  // clears cudaErrorNotReady
      const ncclResult_t result = state_of_communicator();
      if (result != ncclInProgress) accept(result);
      patience.once_more("a peer in the exchange of gradients");
    }
  }

 private:
  // Ends a wait that lasts too long or has become pointless.
  class Patience {
   public:
    Patience(const CommunicatorBootstrap& peers, milliseconds limit) : peers_(peers), limit_(limit) {}
    void once_more(const char* for_what) {
      peers_.check();
      const auto waited = Clock::now() - begin_;
      if (waited > limit_)
        throw WorkerError(kExitWorkerPeerLost,
                          "waited " + std::to_string(limit_.count() / 1000) + " s for " + for_what);
      if (waited < kAwake)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }

   private:
    const CommunicatorBootstrap& peers_;
    const Pulse::WaitsForPeers alive_;
    const milliseconds limit_;
    const Clock::time_point begin_ = Clock::now();
  };

  void meet(const std::vector<BootstrapInfo>& cards) {
    std::vector<ncclUniqueId> ids;
    for (std::size_t rank = 0; rank < cards.size(); rank += kRanksOfId)
      std::memcpy(&ids.emplace_back(), cards[rank].id.data(), sizeof(ncclUniqueId));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const ncclResult_t begun =
        ids.size() == 1
            ? library_.comm_init_rank_config(&communicator_, peers_.size, ids[0], peers_.rank, &config)
            : library_.comm_init_rank_scalable(&communicator_, peers_.size, peers_.rank,
                                               static_cast<int>(ids.size()), ids.data(), &config);
    settle(begun, peers_.meeting, "the other workers' NCCL");
  }

  // `enqueue` passes the result of each call to its argument. A group is always ended, or the thread would
  // stay in it for ever.
  void as_group(const auto& enqueue) {
    accept(library_.group_start());
    ncclResult_t first = ncclSuccess;
    enqueue([&](ncclResult_t result) {
      if (first == ncclSuccess && result != ncclInProgress) first = result;
    });
    const ncclResult_t ended = library_.group_end();
    accept(first);
    // Waits for the launch, since later work on the stream would overtake a group that is still being
    // launched.
    settle(ended, peers_.patience, "a peer to connect");
  }

  ncclResult_t state_of_communicator() const {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = library_.comm_get_async_error(communicator_, &state);
    return asked != ncclSuccess ? asked : state;
  }

  void settle(ncclResult_t result, milliseconds limit, const char* for_what) const {
    if (result == ncclInProgress) {
      Patience patience(peers_, limit);
      while ((result = state_of_communicator()) == ncclInProgress) patience.once_more(for_what);
    }
    accept(result);
  }

  // Throws unless `result` is success or in progress.
  void accept(ncclResult_t result) const {
    if (result == ncclSuccess || result == ncclInProgress) return;
    // The cause may be a failure of the GPU, of which CUDA knows more.
    check(cudaPeekAtLastError(), "exchanging gradients");
    std::string text = std::string("NCCL: ") + library_.get_error_string(result);
    const char* const more = library_.get_last_error(communicator_);
    if (more != nullptr && *more != '\0') text += std::string(": ") + more;
    switch (result) {
      case ncclInvalidArgument:
      case ncclInvalidUsage:
        throw WorkerError(kExitConfig, text);
      case ncclRemoteError:
      case ncclSystemError:  // usually a broken connection
        throw WorkerError(kExitWorkerPeerLost, text);
      default:
        throw WorkerError(kExitOsError, text);
    }
  }

  // An abort waits for NCCL's own threads, maybe for ever. Then this process ends, and another takes its
  // place.
  void give_up() noexcept {
    if (communicator_ != nullptr) {
      const auto given_up = std::make_shared<std::promise<void>>();
      std::future<void> future = given_up->get_future();
      std::thread([abort = library_.comm_abort, communicator = communicator_, gpu = gpu_, given_up] {
        use_gpu(gpu);
        abort(communicator);
        given_up->set_value();
      }).detach();
      communicator_ = nullptr;
      const Clock::time_point begun = Clock::now();
      if (future.wait_for(kAbortPatience) != std::future_status::ready) {
        log_warn("NCCL did not give up its connections within " + std::to_string(kAbortPatience.count()) +
                 " s; this worker ends, and a new one takes its place");
        _exit(kExitOsError);
      }
      const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - begun);
      log_debug("gave up NCCL's connections in " + std::to_string(took.count()) + " ms");
    }
    if (done_ != nullptr) cudaEventDestroy(done_);
  }

  const Nccl& library_;
  const int gpu_;
  const CommunicatorBootstrap peers_;
  std::vector<std::string> hosts_;  // [rank]
  ncclComm_t communicator_ = nullptr;
  cudaEvent_t done_ = nullptr;
};

}  // namespace

std::unique_ptr<DeviceCommunicator> make_nccl_communicator(int gpu, const CommunicatorBootstrap& peers,
                                                           UseRecord& use) {
  static_assert(sizeof(ncclUniqueId) == sizeof(BootstrapInfo::id));
  use_gpu(gpu);
  const Nccl* const library = nccl();
  BootstrapInfo own;
  own.set_host(host_of_nccl());
  if (library == nullptr) {
    own.set_why_not(why_no_nccl());
  } else if (peers.rank % kRanksOfId == 0) {
    ncclUniqueId id;
    if (library->get_unique_id(&id) == ncclSuccess)
      std::memcpy(own.id.data(), &id, sizeof id);
    else
      own.set_why_not(std::string("it finds no network: ") + library->get_last_error(nullptr));
  }
  const std::optional<std::vector<BootstrapInfo>> cards = exchange_bootstrap_info(peers, own, use);
  if (!cards) return nullptr;
  use.set("exchange", "NCCL " + library->version + " (" + library->file + ")");
  return std::make_unique<NcclLinks>(*library, gpu, peers, *cards);
}

void check_nccl_environment() {
  const char* const blocking = std::getenv("NCCL_COMM_BLOCKING");
  if (blocking != nullptr && std::string(blocking) != "0")
    throw WorkerError(kExitConfig,
                      std::string("NCCL_COMM_BLOCKING=") + blocking +
                          " is set, with which a worker could not give up a lost peer: unset it");
  // A peer's death can destroy the contexts of all GPUs that multicast with it.
  setenv("NCCL_NVLS_ENABLE", "0", 0);
}

}  // namespace dtrun::worker::cuda
