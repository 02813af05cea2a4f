// The Store service: every operation is carried out on one strand by the pure KeyValueStore; a Get that waits
// keeps its reactor until the key comes, its time is up or the caller goes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/core/store.h"
#include "rendezvous/server/strand.h"

namespace dtrun::rendezvous {

class StoreService final : public v1::Store::CallbackService {
 public:
  // The strand must outlive every call, that is, the server's shutdown. `serves` is called there: false if
  // another host is the coordinator, and has the keys.
  StoreService(Strand& strand, const KeyValueStore::Limits& limits, std::function<bool()> serves)
      : strand_(strand), serves_(std::move(serves)), store_(limits) {}

  grpc::ServerUnaryReactor* Set(grpc::CallbackServerContext* context, const v1::SetRequest* request,
                                v1::SetReply* reply) override;
  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* context, const v1::GetRequest* request,
                                v1::GetReply* reply) override;

  // Deletes all keys with the prefix. On the strand.
  void forget(const std::string& prefix) { store_.erase_all(prefix); }
  // Ends all waiting gets: their callers have to ask the next store. On the strand.
  void send_away();
  void clear() { send_away(), store_.clear(); }  // on the strand, too

  // Answers waiters that can be answered now; returns the next deadline. On the strand.
  std::int64_t tend();

 private:
  class WaitingGet;
  void get_or_wait(WaitingGet* call);
  void cancel(KeyValueStore::WaiterId id);

  Strand& strand_;
  const std::function<bool()> serves_;
  std::atomic<KeyValueStore::WaiterId> next_id_{1};
  // The rest is the strand's.
  KeyValueStore store_;
  std::map<KeyValueStore::WaiterId, WaitingGet*> waiting_;
};

}  // namespace dtrun::rendezvous
