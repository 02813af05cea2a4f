#include "rendezvous/server/store_service.h"

#include <algorithm>
#include <utility>

namespace dtrun::rendezvous {
namespace {

// The client asks again on its next connection.
grpc::Status elsewhere() { return {grpc::StatusCode::UNAVAILABLE, "another host is the coordinator"}; }

grpc::Status not_found(const std::string& key) { return {grpc::StatusCode::NOT_FOUND, "no key " + key}; }

std::string mebibytes(std::size_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

grpc::Status status_of(KeyValueStore::Outcome outcome, const std::string& key,
                       const KeyValueStore::Limits& limits) {
  const std::string name = key.size() <= 64 ? key : key.substr(0, 64) + "...";
  switch (outcome) {
    case KeyValueStore::Outcome::kDone:
      return grpc::Status::OK;
    case KeyValueStore::Outcome::kItemTooLarge:
      return {grpc::StatusCode::RESOURCE_EXHAUSTED,
              "key " + name + " with its value is over " + mebibytes(limits.item) +
                  "; the store is for addresses and ids, send data between the workers"};
    case KeyValueStore::Outcome::kRunFull:
      return {grpc::StatusCode::RESOURCE_EXHAUSTED,
              "key " + name + " does not fit: a run's keys may take " + mebibytes(limits.run)};
    case KeyValueStore::Outcome::kStoreFull:
      return {grpc::StatusCode::RESOURCE_EXHAUSTED, "key " + name + " does not fit: the store holds its " +
                                                        mebibytes(limits.total) + " for all runs already"};
  }
  return {grpc::StatusCode::INTERNAL, "an unknown outcome"};
}

}  // namespace

// Deletes itself when gRPC is done with it, which is after finish().
class StoreService::WaitingGet final : public grpc::ServerUnaryReactor {
 public:
  WaitingGet(StoreService& service, KeyValueStore::WaiterId id, const v1::GetRequest* request,
             v1::GetReply* reply, CallerIdentity caller, Door::Share share)
      : service_(service),
        id_(id),
        request_(request),
        reply_(reply),
        caller_(std::move(caller)),
        share_(std::move(share)) {}

  KeyValueStore::WaiterId id() const { return id_; }

  const std::string& key() const { return request_->key(); }
  std::int64_t timeout() const { return KeyValueStore::allowed_wait(request_->timeout_ms()); }
  // A scoped token's end ends its waits.
  std::int64_t wait() const { return std::min(timeout(), caller_.left()); }

  void finish(std::optional<std::string> value) {
    if (const auto refusal = caller_.refusal_for_key(key())) {
      Finish(status_of_refusal(refusal));
    } else if (value) {
      reply_->set_value(*std::move(value));
      Finish(grpc::Status::OK);
    } else if (timeout() == 0) {
      Finish(not_found(key()));
    } else {
      Finish({grpc::StatusCode::DEADLINE_EXCEEDED,
              "key " + key() + " was not set within " + std::to_string(timeout()) + " ms"});
    }
  }
  void finish_cancelled() { Finish(grpc::Status::CANCELLED); }
  void finish_elsewhere() { Finish(elsewhere()); }

 private:
  // By id: the call may have been answered, and be gone, by the time the strand gets there.
  void OnCancel() override {
    service_.strand_.post([&service = service_, id = id_] { service.cancel(id); });
  }
  void OnDone() override { delete this; }

  StoreService& service_;
  const KeyValueStore::WaiterId id_;
  const v1::GetRequest* const request_;
  v1::GetReply* const reply_;
  const CallerIdentity caller_;
  const Door::Share share_;
};

grpc::ServerUnaryReactor* StoreService::refuse(grpc::CallbackServerContext* context,
                                               const CallerIdentity& caller, const std::string& key) const {
  grpc::Status status = status_of_refusal(caller.refusal_for_key(key));
  if (status.ok() && !store_.fits(key))
    status = status_of(KeyValueStore::Outcome::kItemTooLarge, key, store_.limits());
  return status.ok() ? nullptr : finished(context, status);
}

grpc::ServerUnaryReactor* StoreService::Set(grpc::CallbackServerContext* context,
                                            const v1::SetRequest* request, v1::SetReply*) {
  if (auto* refused = refuse(context, door_.caller(*context), request->key())) return refused;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  strand_.post([this, reactor, request] {
    if (!serves_()) return reactor->Finish(elsewhere());
    const KeyValueStore::Outcome outcome = store_.set(request->key(), request->value());
    reactor->Finish(status_of(outcome, request->key(), store_.limits()));
  });
  return reactor;
}

grpc::ServerUnaryReactor* StoreService::Get(grpc::CallbackServerContext* context,
                                            const v1::GetRequest* request, v1::GetReply* reply) {
  const CallerIdentity caller = door_.caller(*context);
  if (auto* refused = refuse(context, caller, request->key())) return refused;
  auto share = door_.share(caller, GuestCalls::kWaiter);
  if (!share) return finished(context, Door::has_its_share(caller, GuestCalls::kWaiter));
  auto* call = new WaitingGet(*this, next_id_++, request, reply, caller, *std::move(share));
  strand_.post([this, call] { get_or_wait(call); });
  return call;
}

void StoreService::get_or_wait(WaitingGet* call) {
  if (!serves_()) return call->finish_elsewhere();
  std::optional<std::string> value = store_.get(call->key());
  if (value || call->timeout() == 0) return call->finish(std::move(value));
  waiting_[call->id()] = call;
  store_.wait(call->id(), call->key(), steady_now() + call->wait());
}

void StoreService::cancel(KeyValueStore::WaiterId id) {
  auto call = waiting_.extract(id);
  if (call.empty()) return;
  store_.cancel(id);
  call.mapped()->finish_cancelled();
}

void StoreService::send_away() {
  for (const auto& [id, call] : std::exchange(waiting_, {})) {
    store_.cancel(id);
    call->finish_elsewhere();
  }
}

std::int64_t StoreService::tend() {
  for (KeyValueStore::Answer& answer : store_.take_answers(steady_now())) {
    auto call = waiting_.extract(answer.waiter);
    if (!call.empty()) call.mapped()->finish(std::move(answer.value));
  }
  return store_.next_deadline();
}

}  // namespace dtrun::rendezvous
