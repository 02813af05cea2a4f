#include "rendezvous/client/caller.h"

#include <utility>

#include "rendezvous/wire/grpc_setup.h"

namespace dtrun::rendezvous {

void Caller::interrupt() {
  connector_.interrupt();
  const std::lock_guard lock(mutex_);
  interrupted_ = true;
  if (context_ != nullptr) context_->TryCancel();
}

Status Caller::connect(std::chrono::milliseconds limit) {
  refused_ = false;
  if (stub_) return {};
  const auto deadline = std::chrono::steady_clock::now() + limit;
  Status first;
  bool refused = true;
  for (std::size_t tried = 0; tried < ports_.size(); ++tried) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (tried > 0 && left.count() <= 0) break;
    const Dialled dialled = connector_.dial(host_, port(), left);
    if (dialled.fd >= 0) {
      stub_ = v1::Election::NewStub(connector_.open(host_, dialled, port()));
      return {};
    }
    refused = refused && dialled.refused;
    if (first.ok()) first = Status(kExitUnavailable, endpoint_text(host_, port()) + ": " + dialled.error);
    try_next_port();
  }
  answers_at_ = 0;
  refused_ = refused;
  return first;
}

bool Caller::enter(grpc::ClientContext* context) {
  const std::lock_guard lock(mutex_);
  if (!interrupted_) context_ = context;
  return !interrupted_;
}

Status Caller::leave(const grpc::Status& status, std::chrono::milliseconds limit) {
  const int tried = port();
  const bool answered_before = std::exchange(answers_at_, status.ok() ? tried : 0) == tried;
  {
    const std::lock_guard lock(mutex_);
    context_ = nullptr;
    if (status.ok()) return {};
    if (interrupted_) return Status(kExitUnavailable, "interrupted");
  }
  const std::string where = endpoint_text(host_, tried);
  const bool other_list = status.error_code() == grpc::StatusCode::FAILED_PRECONDITION;
  if (!other_list || ports_.size() > 1) stub_.reset();
  if (other_list || !answered_before) try_next_port();
  if (other_list) return Status(kExitUsage, where + " has another list of hosts: " + status.error_message());
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE)
    RETURN_IF_ERROR(connector_.compare_keys(host_, tried, limit));
  return Status(kExitUnavailable, where + ": " + status.error_message());
}

}  // namespace dtrun::rendezvous
