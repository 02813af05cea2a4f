// A client's store operations under way. They outlive a broken connection: an operation without an answer is
// sent again on the next connection, since doing it twice is doing it once. A store that was restarted has
// lost all keys: it is sent again the keys that this agent's workers had set in their generation. So workers
// that are just meeting through the store do not fail because the coordinator was restarted.
#pragma once

#include <grpcpp/channel.h>

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "proto/control.pb.h"

namespace dtrun::rendezvous {

// Thread-safe. On the heap, in a shared_ptr: calls of gRPC's may outlive its owner.
class KvCalls : public std::enable_shared_from_this<KvCalls> {
 public:
  // On any thread, without a lock held.
  using Answer = std::function<void(int worker_serial, control::KvReply)>;
  explicit KvCalls(Answer answer) : answer_(std::move(answer)) {}

  void start(int worker_serial, const std::string& prefix, const control::KvRequest& request);

  void connected(const std::shared_ptr<grpc::Channel>& channel);
  void disconnected();
  void met_store(const std::string& instance);  // which store answered; another one than before was restarted
  void expire();  // answers operations that have waited for a connection for too long
  void cancel();

 private:
  using Clock = std::chrono::steady_clock;
  struct Operation {
    int worker_serial = 0;
    std::string prefix = {};
    control::KvRequest request = {};
    Clock::time_point give_up = {};  // when to stop waiting for a connection
    bool silent = false;             // sent again to a restarted store: no worker waits for the answer
  };

  void issue(Operation operation);
  void ended(Operation operation, const std::weak_ptr<grpc::Channel>& used, control::KvReply reply,
             bool unreachable);
  void forget(const Operation& operation);
  void finish(const Operation& operation, control::KvReply reply) const;

  const Answer answer_;
  std::mutex mutex_;  // guards the rest
  std::shared_ptr<grpc::Channel> channel_;
  std::string store_;                               // instance, empty before the first
  std::deque<Operation> waiting_;                   // for a connection
  std::string set_prefix_;                          // of the newest generation
  std::map<std::string, control::KvRequest> sets_;  // in it, by key
  std::vector<std::weak_ptr<grpc::ClientContext>> contexts_;
};

}  // namespace dtrun::rendezvous
