#include "worker/collective/process_group.h"

#include <atomic>
#include <utility>

#include "worker/base/error.h"
#include "worker/collective/tags.h"

namespace dtrun::worker {

namespace {

class SingleProcess final : public ProcessGroup {
 public:
  explicit SingleProcess(std::stop_token stop) : stop_(std::move(stop), Abort{aborted_}) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::unique_ptr<Work> start(std::span<const OutMessage>, std::span<const InMessage>) override {
    check(*aborted_);
    return std::make_unique<Nothing>(aborted_);
  }
  void abort() noexcept override { *aborted_ = true; }
  void check() const override { check(*aborted_); }

 private:
  using Flag = std::shared_ptr<std::atomic<bool>>;

  static void check(const std::atomic<bool>& aborted) {
    if (aborted) throw WorkerError(kExitWorkerPeerLost, "the process group was aborted");
  }
  struct Nothing final : Work {
    explicit Nothing(Flag flag) : aborted(std::move(flag)) {}
    void wait() override { check(*aborted); }
    const Flag aborted;
  };
  struct Abort {
    Flag aborted;
    void operator()() const noexcept { *aborted = true; }
  };

  const Flag aborted_ = std::make_shared<std::atomic<bool>>(false);
  const std::stop_callback<Abort> stop_;
};

class SubGroup final : public ProcessGroup {
 public:
  SubGroup(ProcessGroup& whole, int begin, int end) : whole_(whole), begin_(begin), size_(end - begin) {}

  int rank() const override { return whole_.rank() - begin_; }
  int size() const override { return size_; }
  int global_rank(int rank) const override { return whole_.global_rank(begin_ + rank); }
  std::unique_ptr<Work> start(std::span<const OutMessage> sends,
                              std::span<const InMessage> receives) override {
    std::vector<OutMessage> out(sends.begin(), sends.end());
    std::vector<InMessage> in(receives.begin(), receives.end());
    for (OutMessage& message : out) message.peer += begin_;
    for (InMessage& message : in) message.peer += begin_;
    return std::make_unique<Messages>(whole_.start(out, in), begin_);
  }
  void abort() noexcept override { whole_.abort(); }
  void check() const override { whole_.check(); }
  Traffic traffic() const override { return whole_.traffic(); }

 private:
  struct Messages final : Work {
    Messages(std::unique_ptr<Work> of_whole, int begin) : work(std::move(of_whole)), begin(begin) {}
    void wait() override { work->wait(); }
    void wait_from(int first, const Waited& waited) override {
      work->wait_from(begin + first, [&](int peer, auto from, auto to) { waited(peer - begin, from, to); });
    }
    const std::unique_ptr<Work> work;
    const int begin;
  };

  ProcessGroup& whole_;
  const int begin_, size_;
};

}  // namespace

std::unique_ptr<Work> ProcessGroup::start_gather(
    std::uint32_t tag, const std::function<std::span<std::byte>(int rank)>& part_of) {
  std::vector<OutMessage> sends;
  std::vector<InMessage> receives;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    sends.push_back({.peer = peer, .tag = tag, .bytes = part_of(rank())});
    receives.push_back({.peer = peer, .tag = tag, .bytes = part_of(peer)});
  }
  return start(sends, receives);
}

void ProcessGroup::all_gather(std::span<std::byte> all) {
  const std::size_t record = all.size() / size();
  start_gather(kTagAllGather, [&](int rank) { return all.subspan(rank * record, record); })->wait();
}

void ProcessGroup::broadcast(int root, std::span<std::byte> bytes) {
  std::vector<OutMessage> sends;
  std::vector<InMessage> receives;
  if (rank() == root) {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != root) sends.push_back({.peer = peer, .tag = kTagBroadcast, .bytes = bytes});
    }
  } else {
    receives.push_back({.peer = root, .tag = kTagBroadcast, .bytes = bytes});
  }
  start(sends, receives)->wait();
}

void ProcessGroup::barrier() {
  std::vector<std::byte> tokens(size());
  all_gather(tokens);
}

std::unique_ptr<ProcessGroup> make_sub_group(ProcessGroup& whole, int begin, int end) {
  return std::make_unique<SubGroup>(whole, begin, end);
}

std::unique_ptr<ProcessGroup> make_single_process_group(std::stop_token stop) {
  return std::make_unique<SingleProcess>(std::move(stop));
}

}  // namespace dtrun::worker
