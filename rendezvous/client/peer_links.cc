#include "rendezvous/client/peer_links.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "rendezvous/client/caller.h"
#include "rendezvous/wire/election.h"
#include "rendezvous/wire/grpc_setup.h"

namespace dtrun::rendezvous {
namespace {

using std::chrono::milliseconds;

// Well below a vote's lease: a host that does not answer in time is dialled anew while its vote still counts.
constexpr milliseconds kAskTimeout{250};
// Between two attempts to reach one that refuses.
constexpr milliseconds kPauseAfterFailure{50};

// Shared with its thread, which outlives it where it waits for a name server.
class PeerLink : public std::enable_shared_from_this<PeerLink> {
 public:
  PeerLink(int host, const std::string& name, int self, const std::vector<int>& ports,
           const std::optional<JobKey>& key, std::string list, Peers::Answered answered)
      : host_(host),
        self_(self),
        list_(std::move(list)),
        answered_(std::move(answered)),
        caller_(name, ports, key) {}

  void start() {
    thread_ = std::thread([self = shared_from_this()] { self->run(); });
  }

  void end() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    caller_.interrupt();
    {
      const std::lock_guard lock(answered_mutex_);
      answered_ = nullptr;
    }
    caller_.let_go(thread_);
  }

  void ask(const election::VoteRequest& ask) {
    {
      const std::lock_guard lock(mutex_);
      next_ = ask;
    }
    changed_.notify_all();
  }

  void flush(std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline, [this] { return !next_ && !asking_; });
  }

 private:
  void run() {
    for (;;) {
      election::VoteRequest ask;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return next_ || ending_; });
        if (ending_) return;
        ask = *std::exchange(next_, std::nullopt);
        asking_ = true;
      }
      const bool reached = carry(ask);
      std::unique_lock lock(mutex_);
      asking_ = false;
      changed_.notify_all();
      if (!reached) changed_.wait_for(lock, kPauseAfterFailure, [this] { return ending_; });
    }
  }

  bool carry(const election::VoteRequest& ask) {
    v1::VoteCall request;
    request.set_list(list_);
    request.set_from(self_);
    request.set_to(host_);
    to_wire(ask, request.mutable_ask());
    v1::VoteReply reply;
    const Status status = caller_.call(&v1::Election::Stub::Vote, request, &reply, kAskTimeout);
    if (!status.ok()) return false;
    const std::lock_guard lock(answered_mutex_);
    if (answered_) answered_(host_, from_wire(reply));
    return true;
  }

  const int host_, self_;
  const std::string list_;
  std::mutex answered_mutex_;  // guards the next; null: no listener any more
  Peers::Answered answered_;
  Caller caller_;
  std::mutex mutex_;  // guards the next three
  std::condition_variable changed_;
  std::optional<election::VoteRequest> next_;
  bool asking_ = false;
  bool ending_ = false;
  std::thread thread_;
};

class PeerLinks final : public Peers {
 public:
  PeerLinks(const std::vector<std::string>& hosts, int self, const std::vector<int>& ports,
            const std::optional<JobKey>& key, const std::string& list, const Answered& answered) {
    for (int host = 0; host < static_cast<int>(hosts.size()); ++host) {
      links_.push_back(nullptr);
      if (host == self) continue;
      links_.back() = std::make_shared<PeerLink>(host, hosts[static_cast<std::size_t>(host)], self, ports,
                                                 key, list, answered);
      links_.back()->start();
    }
  }
  ~PeerLinks() override {
    for (const auto& link : links_)
      if (link) link->end();
  }

  void ask(int to, const election::VoteRequest& ask) override {
    links_[static_cast<std::size_t>(to)]->ask(ask);
  }
  void flush(milliseconds limit) override {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    for (const auto& link : links_)
      if (link) link->flush(deadline);
  }

 private:
  std::vector<std::shared_ptr<PeerLink>> links_;  // by host; null: this one
};

}  // namespace

MakePeers peers_on(const std::vector<std::string>& hosts, int self, const std::vector<int>& ports,
                   const std::optional<JobKey>& key, const std::string& list) {
  set_up_grpc();
  return [=](const Peers::Answered& answered) {
    return std::make_unique<PeerLinks>(hosts, self, ports, key, list, answered);
  };
}

}  // namespace dtrun::rendezvous
