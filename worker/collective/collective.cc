#include "worker/collective/collective.h"

#include "worker/base/pulse.h"

namespace dtrun::worker {

namespace {

// Tags of the blocking operations; gradient_exchange.h and the trainer use those below.
constexpr std::uint32_t kTagAllGather = 0xfffffff0, kTagBroadcast = 0xfffffff1;

class SingleProcess final : public Collective {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::unique_ptr<Pending> start(std::span<const OutMessage>, std::span<const InMessage>) override {
    struct Nothing final : Pending {
      void wait() override {}
    };
    return std::make_unique<Nothing>();
  }
  void all_reduce_sum(std::span<float>) override {}
};

}  // namespace

void Collective::all_gather(std::span<std::byte> all) {
  const std::size_t record = all.size() / size();
  std::vector<OutMessage> sends;
  std::vector<InMessage> receives;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    sends.push_back({peer, kTagAllGather, all.subspan(rank() * record, record)});
    receives.push_back({peer, kTagAllGather, all.subspan(peer * record, record)});
  }
  const Pulse::WaitsForPeers alive;
  start(sends, receives)->wait();
}

void Collective::broadcast(int root, std::span<std::byte> bytes) {
  std::vector<OutMessage> sends;
  std::vector<InMessage> receives;
  if (rank() == root) {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != root) sends.push_back({peer, kTagBroadcast, bytes});
    }
  } else {
    receives.push_back({root, kTagBroadcast, bytes});
  }
  const Pulse::WaitsForPeers alive;
  start(sends, receives)->wait();
}

void Collective::barrier() {
  std::vector<std::byte> tokens(size());
  all_gather(tokens);
}

std::unique_ptr<Collective> make_single_process_collective() { return std::make_unique<SingleProcess>(); }

}  // namespace dtrun::worker
