#include "rendezvous/client/client_kv.h"

#include <chrono>
#include <utility>

#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/core/store.h"

namespace dtrun::rendezvous {
namespace {

// Time for the way there and back, on top of a Get's wait: after it the coordinator counts as unreachable.
constexpr std::chrono::milliseconds kSlack{30000};

using Done = std::function<void(control::KvReply, bool unreachable)>;

template <typename Request, typename Reply>
using Method = void (v1::Store::StubInterface::async_interface::*)(grpc::ClientContext*, const Request*,
                                                                   Reply*, std::function<void(grpc::Status)>);

// Keeps a call's parts together until gRPC is done with them.
template <typename Request, typename Reply>
struct Call {
  std::unique_ptr<v1::Store::Stub> stub;
  grpc::ClientContext context;
  Request request;
  Reply reply;
};

template <typename Request, typename Reply, typename Fill>
std::weak_ptr<grpc::ClientContext> call(const std::shared_ptr<grpc::Channel>& channel,
                                        Method<Request, Reply> method, Request request, std::uint64_t id,
                                        std::int64_t wait_ms, Done done, Fill fill) {
  auto call = std::make_shared<Call<Request, Reply>>();
  call->stub = v1::Store::NewStub(channel);
  call->context.set_deadline(std::chrono::system_clock::now() + kSlack + std::chrono::milliseconds(wait_ms));
  call->request = std::move(request);
  (call->stub->async()->*method)(&call->context, &call->request, &call->reply,
                                 [call, id, done = std::move(done), fill](const grpc::Status& status) {
                                   control::KvReply reply;
                                   reply.set_id(id);
                                   reply.set_ok(status.ok());
                                   if (status.ok())
                                     fill(call->reply, &reply);
                                   else
                                     reply.set_error("store: " + status.error_message());
                                   done(std::move(reply),
                                        status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                                            status.error_code() == grpc::StatusCode::CANCELLED);
                                 });
  return std::shared_ptr<grpc::ClientContext>(call, &call->context);
}

}  // namespace

std::weak_ptr<grpc::ClientContext> start_kv(const std::shared_ptr<grpc::Channel>& channel,
                                            const std::string& prefix, const control::KvRequest& request,
                                            Done done) {
  using Async = v1::Store::StubInterface::async_interface;
  const std::string key = prefix + request.key();
  const auto run = [&](auto method, auto wire, auto fill, std::int64_t wait_ms = 0) {
    wire.set_key(key);
    return call(channel, method, std::move(wire), request.id(), wait_ms, std::move(done), fill);
  };
  switch (request.op()) {
    case control::KvRequest::GET: {
      const std::int64_t wait_ms = KeyValueStore::allowed_wait(request.timeout_ms());
      v1::GetRequest get;
      get.set_timeout_ms(wait_ms);
      return run(
          static_cast<Method<v1::GetRequest, v1::GetReply>>(&Async::Get), std::move(get),
          [](v1::GetReply& from, control::KvReply* to) { to->set_value(std::move(*from.mutable_value())); },
          wait_ms);
    }
    case control::KvRequest::ADD: {
      v1::AddRequest add;
      add.set_delta(request.delta());
      return run(static_cast<Method<v1::AddRequest, v1::AddReply>>(&Async::Add), std::move(add),
                 [](v1::AddReply& from, control::KvReply* to) { to->set_number(from.sum()); });
    }
    case control::KvRequest::COMPARE_AND_SET: {
      v1::CompareAndSetRequest swap;
      swap.set_expected(request.expected());
      swap.set_value(request.value());
      return run(static_cast<Method<v1::CompareAndSetRequest, v1::CompareAndSetReply>>(&Async::CompareAndSet),
                 std::move(swap), [](v1::CompareAndSetReply& from, control::KvReply* to) {
                   to->set_value(std::move(*from.mutable_value()));
                 });
    }
    case control::KvRequest::DELETE:
      return run(static_cast<Method<v1::DeleteRequest, v1::DeleteReply>>(&Async::Delete), v1::DeleteRequest(),
                 [](v1::DeleteReply& from, control::KvReply* to) { to->set_number(from.deleted()); });
    default: {  // SET; the agent's protocol check has refused operations of newer workers
      v1::SetRequest set;
      set.set_value(request.value());
      return run(static_cast<Method<v1::SetRequest, v1::SetReply>>(&Async::Set), std::move(set),
                 [](v1::SetReply&, control::KvReply*) {});
    }
  }
}

}  // namespace dtrun::rendezvous
