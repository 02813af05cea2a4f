#include "rendezvous/client/caller.h"

#include "rendezvous/client/channel.h"
#include "rendezvous/client/tls_probe.h"
#include "rendezvous/wire/grpc_setup.h"

namespace dtrun::rendezvous {

void Caller::interrupt() {
  interrupt_.raise();
  const std::lock_guard lock(mutex_);
  interrupted_ = true;
  if (context_ != nullptr) context_->TryCancel();
}

Status Caller::connect(std::chrono::milliseconds limit) {
  if (stub_) return {};
  resolving_ = true;
  const Dialled dialled = dial(host_, port_, limit, interrupt_);
  resolving_ = false;
  if (dialled.fd < 0) return Status(kExitUnavailable, endpoint_text(host_, port_) + ": " + dialled.error);
  stub_ = v1::Succession::NewStub(open_channel(dialled, port_, key_));
  return {};
}

bool Caller::enter(grpc::ClientContext* context) {
  const std::lock_guard lock(mutex_);
  if (!interrupted_) context_ = context;
  return !interrupted_;
}

Status Caller::leave(const grpc::Status& status, std::chrono::milliseconds limit) {
  {
    const std::lock_guard lock(mutex_);
    context_ = nullptr;
    if (status.ok()) return {};
    if (interrupted_) return Status(kExitUnavailable, "interrupted");
  }
  const std::string where = endpoint_text(host_, port_);
  if (status.error_code() == grpc::StatusCode::FAILED_PRECONDITION)
    return Status(kExitUsage, where + " has another list of hosts: " + status.error_message());
  stub_.reset();
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE)
    if (Status refused = compare_keys(host_, port_, key_, limit, interrupt_); !refused.ok()) return refused;
  return Status(kExitUnavailable, where + ": " + status.error_message());
}

}  // namespace dtrun::rendezvous
