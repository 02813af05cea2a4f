#include "rendezvous/client/client_stream.h"

#include <utility>

namespace dtrun::rendezvous {

void ClientStream::start(const std::shared_ptr<grpc::Channel>& channel, std::shared_ptr<ClientStream> self) {
  self_ = std::move(self);
  v1::Rendezvous::NewStub(channel)->async()->Join(&context_, this);
  AddHold();  // writes start outside of reactions; released with ended_
  StartCall();
  const std::lock_guard lock(mutex_);
  started_ = true;
  pump();
}

void ClientStream::send(const v1::FromAgent& message) {
  const std::lock_guard lock(mutex_);
  if (ended_ || half_closing_) return;
  outbox_.push_back(message);
  pump();
}

void ClientStream::half_close() {
  const std::lock_guard lock(mutex_);
  half_closing_ = true;
  pump();
}

void ClientStream::cancel() { context_.TryCancel(); }

void ClientStream::pump() {
  if (!started_ || ended_ || writing_ || half_closed_) return;
  if (!outbox_.empty()) {
    writing_ = true;
    StartWrite(&outbox_.front());
  } else if (half_closing_) {
    half_closed_ = true;
    StartWritesDone();
  }
}

void ClientStream::OnReadInitialMetadataDone(bool ok) {
  if (ok) {
    {
      const std::lock_guard lock(mutex_);
      connected_ = true;
    }
    sink_.connected();
    changed_.notify_all();
  }
  StartRead(&incoming_);  // fails at once if the call has
}

void ClientStream::OnReadDone(bool ok) {
  if (ok) {
    sink_.received(std::move(incoming_));
    incoming_.Clear();
    StartRead(&incoming_);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  RemoveHold();
}

void ClientStream::OnWriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  writing_ = false;
  outbox_.pop_front();
  if (ok) pump();
}

void ClientStream::OnDone(const grpc::Status& status) {
  const std::shared_ptr<ClientStream> self = std::move(self_);
  {
    const std::lock_guard lock(mutex_);
    status_ = status;
    done_ = true;
  }
  changed_.notify_all();
}

bool ClientStream::wait_until_answered(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [this] { return connected_ || done_; });
}

bool ClientStream::wait_until_done(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [this] { return done_; });
}

void ClientStream::wait_until_done() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return done_; });
}

bool ClientStream::was_connected() const {
  const std::lock_guard lock(mutex_);
  return connected_;
}

grpc::Status ClientStream::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

}  // namespace dtrun::rendezvous
