#include "rendezvous/client/leader_watch.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "rendezvous/client/caller.h"
#include "rendezvous/wire/grpc_setup.h"

namespace dtrun::rendezvous {
namespace {

using std::chrono::milliseconds;

// A host that lives answers by then, also without news; one that does not is dialled anew.
constexpr milliseconds kWithoutNews{1000};
constexpr milliseconds kToAnswer{2000};
constexpr milliseconds kAgain{100};

// Shared by the watch and its threads: one that waits for a name server outlives the watch.
class Inquiry {
 public:
  Inquiry(const std::vector<std::string>& hosts, const std::vector<int>& ports,
          const std::optional<JobKey>& key, std::string list, std::function<void()> changed)
      : ports_(ports), list_(std::move(list)), changed_(std::move(changed)) {
    for (const std::string& host : hosts)
      sources_.push_back(std::make_unique<Source>(count(), host, ports, key));
  }

  int count() const { return static_cast<int>(sources_.size()); }
  void let_go(int source, std::thread& thread) const {
    sources_[static_cast<std::size_t>(source)]->caller.let_go(thread);
  }
  void run(int source) { ask(*sources_[static_cast<std::size_t>(source)]); }

  // No call of `changed` after it returns.
  void silence() {
    const std::lock_guard lock(changed_mutex_);
    changed_ = nullptr;
  }

  LeaderAt newest() const {
    const std::lock_guard lock(mutex_);
    return newest_of_all();
  }

  LeaderAt wait_for(election::Term above, milliseconds limit) {
    std::unique_lock lock(mutex_);
    news_.wait_for(lock, limit, [&] { return interrupted_ || newest_of_all().term > above; });
    return newest_of_all();
  }

  void interrupt() {
    {
      const std::lock_guard lock(mutex_);
      interrupted_ = true;
    }
    ending_ = true;
    news_.notify_all();
    for (const auto& source : sources_) source->caller.interrupt();
  }

  Status trouble() const {
    const std::lock_guard lock(mutex_);
    std::string text;
    for (const auto& source : sources_) {
      if (source->trouble.exit_code() == kExitNoPermission) return source->trouble;
      if (!source->trouble.ok()) text += (text.empty() ? "" : "; ") + source->trouble.message();
    }
    return Status(kExitUnavailable, text.empty() ? "they have not agreed yet on one" : text);
  }

  bool none_can_lead() const {
    const std::lock_guard lock(mutex_);
    const auto refuses = [](const auto& source) { return source->refuses; };
    const bool all_answer = std::ranges::all_of(
        sources_, [](const auto& source) { return source->refuses || source->trouble.ok(); });
    return all_answer && 2 * std::ranges::count_if(sources_, refuses) >= count();
  }

 private:
  struct Source {
    Source(int place, const std::string& host, const std::vector<int>& ports,
           const std::optional<JobKey>& key)
        : place(place), caller(host, ports, key) {}

    const int place;  // in the list
    Caller caller;
    // Guarded by the inquiry's mutex.
    election::Leader leader;  // as this host says
    int port = 0;             // where it says so; 0: it does not
    Status trouble;
    bool refuses = false;  // nobody listens on it
  };

  // REQUIRES: mutex_ held.
  LeaderAt newest_of_all() const {
    LeaderAt newest;
    for (const auto& source : sources_) {
      const auto [term, host] = source->leader;
      if (term <= newest.term) continue;
      const int port = ports_.size() == 1 ? ports_[0] : sources_[static_cast<std::size_t>(host)]->port;
      if (port != 0) newest = {term, host, port};
    }
    return newest;
  }

  void ask(Source& source) {
    election::Term known = 0;
    while (!ending_) {
      v1::LeaderRequest request;
      request.set_known_term(known);
      request.set_wait_ms(kWithoutNews.count());
      request.set_list(list_);
      request.set_to(source.place);
      v1::LeaderReply reply;
      const Status status = source.caller.call(&v1::Election::Stub::Leader, request, &reply, kToAnswer);
      const bool sound = status.ok() && reply.term() > 0 && reply.host() >= 0 &&
                         reply.host() < static_cast<int>(sources_.size());
      known = status.ok() ? reply.term() : 0;
      note(source, sound ? election::Leader{reply.term(), reply.host()} : election::Leader{}, status);
      if (!status.ok()) pause();
    }
  }

  void note(Source& source, const election::Leader& leader, const Status& status) {
    {
      const std::lock_guard lock(mutex_);
      source.trouble = status;
      source.refuses = !status.ok() && source.caller.is_refused();
      const int port = source.caller.answers_at();
      const bool same_leader = std::exchange(source.leader, leader) == leader;
      if (std::exchange(source.port, port) == port && same_leader) return;
    }
    news_.notify_all();
    const std::lock_guard lock(changed_mutex_);
    if (changed_ && !ending_) changed_();
  }

  void pause() {
    std::unique_lock lock(mutex_);
    news_.wait_for(lock, kAgain, [this] { return interrupted_; });
  }

  const std::vector<int> ports_;
  const std::string list_;
  std::mutex changed_mutex_;  // one call at a time; guards the next
  std::function<void()> changed_;
  std::atomic<bool> ending_{false};
  mutable std::mutex mutex_;  // guards the sources' leaders, and
  bool interrupted_ = false;
  std::condition_variable news_;
  std::vector<std::unique_ptr<Source>> sources_;
};

class Watch final : public LeaderWatch {
 public:
  explicit Watch(std::shared_ptr<Inquiry> inquiry) : inquiry_(std::move(inquiry)) {
    for (int source = 0; source < inquiry_->count(); ++source)
      threads_.emplace_back([inquiry = inquiry_, source] { inquiry->run(source); });
  }

  ~Watch() override {
    inquiry_->interrupt();
    inquiry_->silence();
    for (int source = 0; source < inquiry_->count(); ++source)
      inquiry_->let_go(source, threads_[static_cast<std::size_t>(source)]);
  }

  LeaderAt newest() const override { return inquiry_->newest(); }
  LeaderAt wait_for(election::Term above, milliseconds limit) override {
    return inquiry_->wait_for(above, limit);
  }
  void interrupt() override { inquiry_->interrupt(); }
  Status trouble() const override { return inquiry_->trouble(); }
  bool none_can_lead() const override { return inquiry_->none_can_lead(); }

 private:
  const std::shared_ptr<Inquiry> inquiry_;
  std::vector<std::thread> threads_;  // by source
};

}  // namespace

std::unique_ptr<LeaderWatch> LeaderWatch::start(const std::vector<std::string>& hosts,
                                                const std::vector<int>& ports,
                                                const std::optional<JobKey>& key, const std::string& list,
                                                std::function<void()> changed) {
  set_up_grpc();
  return std::make_unique<Watch>(std::make_shared<Inquiry>(hosts, ports, key, list, std::move(changed)));
}

}  // namespace dtrun::rendezvous
