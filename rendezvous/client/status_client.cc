#include "rendezvous/client/status_client.h"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/client/connector.h"
#include "rendezvous/wire/grpc_setup.h"
#include "rendezvous/wire/intake.h"

namespace dtrun::rendezvous {
namespace {

constexpr std::chrono::milliseconds kDialTimeout{5000};

// Makes the context of each call, with its deadline; null: no more calls.
using MakeContext = std::function<std::shared_ptr<grpc::ClientContext>()>;

using Stub = v1::Rendezvous::Stub;
template <typename Request, typename Reply>
using Method = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&, Reply*);

template <typename Request, typename Reply>
Result<Reply> ask_one(const std::string& host, int port, Method<Request, Reply> method,
                      const Request& request, std::chrono::milliseconds dial_timeout, Connector& connector,
                      const MakeContext& make_context) {
  const std::string endpoint = endpoint_text(host, port);
  const Dialled dialled = connector.dial(host, port, dial_timeout);
  if (dialled.fd < 0)
    return Status(kExitUnavailable, "no coordinator at " + endpoint + " (" + dialled.error + ")");
  const auto channel = connector.open(host, dialled, port);
  Reply reply;
  const std::shared_ptr<grpc::ClientContext> context = make_context();
  if (!context) return Status(kExitUnavailable, "interrupted");
  const auto stub = v1::Rendezvous::NewStub(channel);
  const grpc::Status status = (stub.get()->*method)(context.get(), request, &reply);
  if (status.ok()) {
    make_printable(&reply);
    return reply;
  }
  if (status.error_code() == grpc::StatusCode::FAILED_PRECONDITION)
    return Status(kExitUnavailable, endpoint + ": " + status.error_message());
  RETURN_IF_ERROR(connector.compare_keys(host, port, dial_timeout));
  return Status(kExitUnavailable, "what listens at " + endpoint +
                                      " gave no status, so it is no dtrun coordinator (" +
                                      status.error_message() + ")");
}

// The one of several hosts that leads answers; there is no long wait for hosts that do not answer at all.
template <typename Request, typename Reply>
Result<Reply> ask(const std::string& list, int port, Method<Request, Reply> method, const Request& request,
                  std::chrono::milliseconds dial_timeout, Connector& connector,
                  const MakeContext& make_context) {
  set_up_grpc();
  const std::vector<std::string> hosts = hosts_of(list);
  const auto each = dial_timeout / static_cast<int>(hosts.size());
  std::string why;
  for (const std::string& host : hosts) {
    auto reply = ask_one(host, port, method, request, each, connector, make_context);
    if (reply.ok() || hosts.size() == 1 || reply.status().exit_code() == kExitNoPermission) return reply;
    why += (why.empty() ? "" : "; ") + reply.status().message();
  }
  return Status(kExitUnavailable, why);
}

// `timeout`: of the whole call, which several hosts share.
template <typename Request, typename Reply>
Result<Reply> fetch(const std::string& host, int port, Method<Request, Reply> method, const Request& request,
                    std::chrono::milliseconds timeout, const std::optional<JobKey>& key) {
  Connector connector(key);
  const auto each = timeout / static_cast<int>(hosts_of(host).size());
  return ask(host, port, method, request, timeout, connector, [each] {
    auto context = std::make_shared<grpc::ClientContext>();
    context->set_deadline(std::chrono::system_clock::now() + each);
    return context;
  });
}

}  // namespace

Result<v1::StatusReply> fetch_status(const std::string& host, int port, const std::string& run_id,
                                     std::chrono::milliseconds timeout, const std::optional<JobKey>& key) {
  v1::StatusRequest request;
  request.set_run_id(run_id);
  return fetch<v1::StatusRequest, v1::StatusReply>(host, port, &Stub::Status, request, timeout, key);
}

Result<v1::TraceReply> fetch_trace(const std::string& host, int port, const v1::TraceRequest& request,
                                   std::chrono::milliseconds timeout, const std::optional<JobKey>& key) {
  return fetch<v1::TraceRequest, v1::TraceReply>(host, port, &Stub::Trace, request, timeout, key);
}

// Shared with its thread, which outlives the asker if it waits for a name server.
struct EndOfRun::StatusCall {
  explicit StatusCall(const std::optional<JobKey>& key) : connector(key) {}

  Connector connector;
  mutable std::mutex mutex;  // guards the rest
  std::condition_variable told;
  bool ending = false;
  std::shared_ptr<grpc::ClientContext> context;  // of the call under way
  std::optional<v1::RunStatus> run;
  bool done = false;
};

EndOfRun::EndOfRun(const std::string& host, int port, const std::string& run_id,
                   const std::optional<JobKey>& key)
    : call_(std::make_shared<StatusCall>(key)) {
  thread_ = std::thread([call = call_, host, port, run_id] {
    v1::StatusRequest request;
    request.set_run_id(run_id);
    request.set_at_end(true);
    const auto reply = ask<v1::StatusRequest, v1::StatusReply>(
        host, port, &Stub::Status, request, kDialTimeout, call->connector, [call = call.get()] {
          const std::lock_guard lock(call->mutex);
          call->context = call->ending ? nullptr : std::make_shared<grpc::ClientContext>();
          return call->context;
        });
    const std::lock_guard lock(call->mutex);
    call->done = true;
    if (reply.ok() && reply.value().runs_size() == 1) call->run = reply.value().runs(0);
    call->told.notify_all();
  });
}

EndOfRun::~EndOfRun() {
  call_->connector.interrupt();
  {
    const std::lock_guard lock(call_->mutex);
    call_->ending = true;
    if (call_->context) call_->context->TryCancel();
  }
  (void)call_->connector.let_go(thread_);
}

std::optional<v1::RunStatus> EndOfRun::wait_for(std::chrono::milliseconds limit) {
  std::unique_lock lock(call_->mutex);
  call_->told.wait_for(lock, limit, [this] { return call_->run.has_value(); });
  return call_->run;
}

bool EndOfRun::broken() const {
  const std::lock_guard lock(call_->mutex);
  return call_->done && !call_->run;
}

}  // namespace dtrun::rendezvous
