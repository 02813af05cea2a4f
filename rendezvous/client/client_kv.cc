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
using AsyncMethod = void (v1::Store::StubInterface::async_interface::*)(grpc::ClientContext*, const Request*,
                                                                        Reply*,
                                                                        std::function<void(grpc::Status)>);

// Keeps a call's parts together until gRPC is done with them.
template <typename Request, typename Reply>
struct UnaryCall {
  std::unique_ptr<v1::Store::Stub> stub;
  grpc::ClientContext context;
  Request request;
  Reply reply;
};

template <typename Request, typename Reply, typename Fill>
std::weak_ptr<grpc::ClientContext> call(const std::shared_ptr<grpc::Channel>& channel,
                                        AsyncMethod<Request, Reply> method, Request request, std::uint64_t id,
                                        std::int64_t wait_ms, Done done, Fill fill) {
  auto call = std::make_shared<UnaryCall<Request, Reply>>();
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
  if (request.op() == control::KvRequest::GET) {
    const std::int64_t wait_ms = KeyValueStore::allowed_wait(request.timeout_ms());
    v1::GetRequest get;
    get.set_key(prefix + request.key());
    get.set_timeout_ms(wait_ms);
    return call(channel, static_cast<AsyncMethod<v1::GetRequest, v1::GetReply>>(&Async::Get), std::move(get),
                request.id(), wait_ms, std::move(done), [](v1::GetReply& from, control::KvReply* to) {
                  to->set_value(std::move(*from.mutable_value()));
                });
  }
  v1::SetRequest set;
  set.set_key(prefix + request.key());
  set.set_value(request.value());
  return call(channel, static_cast<AsyncMethod<v1::SetRequest, v1::SetReply>>(&Async::Set), std::move(set),
              request.id(), 0, std::move(done), [](v1::SetReply&, control::KvReply*) {});
}

}  // namespace dtrun::rendezvous
