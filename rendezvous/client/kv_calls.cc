#include "rendezvous/client/kv_calls.h"

#include <utility>

#include "rendezvous/client/client_kv.h"
#include "rendezvous/core/store.h"

namespace dtrun::rendezvous {
namespace {

// The time for which an operation waits for a connection, on top of a Get's own wait.
constexpr std::chrono::milliseconds kPatience{30000};

control::KvReply no_connection(const control::KvRequest& request) {
  control::KvReply reply;
  reply.set_id(request.id());
  reply.set_error("store: not connected to the coordinator");
  return reply;
}

}  // namespace

void KvCalls::start(int worker_serial, const std::string& prefix, const control::KvRequest& request) {
  const std::chrono::milliseconds wait(KeyValueStore::allowed_wait(request.timeout_ms()));
  Operation operation{.worker_serial = worker_serial,
                      .prefix = prefix,
                      .request = request,
                      .give_up = Clock::now() + kPatience + wait};
  if (request.op() == control::KvRequest::SET) {
    const std::lock_guard lock(mutex_);
    if (std::exchange(set_prefix_, prefix) != prefix) sets_.clear();
    sets_[request.key()] = request;
  }
  issue(std::move(operation));
}

void KvCalls::issue(Operation operation) {
  std::shared_ptr<grpc::Channel> channel;
  {
    const std::lock_guard lock(mutex_);
    channel = channel_;
    if (!channel) {
      waiting_.push_back(std::move(operation));
      return;
    }
  }
  const std::string prefix = operation.prefix;
  const control::KvRequest request = operation.request;
  auto context = start_kv(channel, prefix, request,
                          [self = shared_from_this(), used = std::weak_ptr(channel),
                           operation = std::move(operation)](control::KvReply reply, bool unreachable) {
                            self->ended(operation, used, std::move(reply), unreachable);
                          });
  const std::lock_guard lock(mutex_);
  std::erase_if(contexts_, [](const auto& known) { return known.expired(); });
  contexts_.push_back(std::move(context));
}

void KvCalls::ended(Operation operation, const std::weak_ptr<grpc::Channel>& used, control::KvReply reply,
                    bool unreachable) {
  if (!unreachable && !reply.ok()) forget(operation);
  if (!unreachable || Clock::now() >= operation.give_up) return finish(operation, std::move(reply));
  {
    const std::lock_guard lock(mutex_);
    // The connection may not be known to be broken yet: trying again on it would fail again at once.
    if (channel_ == nullptr || channel_ == used.lock()) {
      waiting_.push_back(std::move(operation));
      return;
    }
  }
  issue(std::move(operation));
}

// A value that the store refused would be refused by the next one as well, and takes no memory here.
void KvCalls::forget(const Operation& operation) {
  if (operation.request.op() != control::KvRequest::SET) return;
  const std::lock_guard lock(mutex_);
  const auto known = sets_.find(operation.request.key());
  if (known != sets_.end() && known->second.value() == operation.request.value()) sets_.erase(known);
}

void KvCalls::finish(const Operation& operation, control::KvReply reply) const {
  if (!operation.silent) answer_(operation.worker_serial, std::move(reply));
}

void KvCalls::connected(const std::shared_ptr<grpc::Channel>& channel) {
  std::deque<Operation> waiting;
  {
    const std::lock_guard lock(mutex_);
    channel_ = channel;
    waiting.swap(waiting_);
  }
  for (Operation& operation : waiting) issue(std::move(operation));
}

void KvCalls::disconnected() {
  const std::lock_guard lock(mutex_);
  channel_.reset();
}

void KvCalls::met_store(const std::string& instance) {
  std::vector<Operation> again;
  {
    const std::lock_guard lock(mutex_);
    const std::string before = std::exchange(store_, instance);
    if (before.empty() || before == instance) return;
    for (const auto& [key, request] : sets_)
      again.push_back(
          {.prefix = set_prefix_, .request = request, .give_up = Clock::now() + kPatience, .silent = true});
  }
  for (Operation& operation : again) issue(std::move(operation));
}

void KvCalls::expire() {
  std::deque<Operation> over;
  {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    for (const Operation& operation : waiting_)
      if (now >= operation.give_up) over.push_back(operation);
    std::erase_if(waiting_, [now](const Operation& operation) { return now >= operation.give_up; });
  }
  for (const Operation& operation : over) finish(operation, no_connection(operation.request));
}

void KvCalls::cancel() {
  const std::lock_guard lock(mutex_);
  channel_.reset();
  waiting_.clear();
  for (const auto& known : contexts_)
    if (auto context = known.lock()) context->TryCancel();
}

}  // namespace dtrun::rendezvous
