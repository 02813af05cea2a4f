#include "rendezvous/server/store_service.h"

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
    case KeyValueStore::Outcome::kStoreFull:
      return {grpc::StatusCode::RESOURCE_EXHAUSTED,
              "key " + name + " does not fit: the store holds its " + mebibytes(limits.total) + " already"};
  }
  return {grpc::StatusCode::INTERNAL, "an unknown outcome"};
}

}  // namespace

// Deletes itself when gRPC is done with it, which is after finish().
class StoreService::WaitingGet final : public grpc::ServerUnaryReactor {
 public:
  WaitingGet(StoreService& service, KeyValueStore::WaiterId id, const v1::GetRequest* request,
             v1::GetReply* reply)
      : service_(service), id_(id), request_(request), reply_(reply) {}

  KeyValueStore::WaiterId id() const { return id_; }

  const std::string& key() const { return request_->key(); }
  std::int64_t timeout() const { return KeyValueStore::allowed_wait(request_->timeout_ms()); }

  void finish(std::optional<std::string> value) {
    if (value) {
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
};

grpc::ServerUnaryReactor* StoreService::Set(grpc::CallbackServerContext* context,
                                            const v1::SetRequest* request, v1::SetReply*) {
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
  if (!store_.fits(request->key())) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(status_of(KeyValueStore::Outcome::kItemTooLarge, request->key(), store_.limits()));
    return reactor;
  }
  auto* call = new WaitingGet(*this, next_id_++, request, reply);
  strand_.post([this, call] { get_or_wait(call); });
  return call;
}

void StoreService::get_or_wait(WaitingGet* call) {
  if (!serves_()) return call->finish_elsewhere();
  std::optional<std::string> value = store_.get(call->key());
  if (value || call->timeout() == 0) return call->finish(std::move(value));
  waiting_[call->id()] = call;
  store_.wait(call->id(), call->key(), steady_now() + call->timeout());
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
