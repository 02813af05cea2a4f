#include "rendezvous/client/connector.h"

#include "rendezvous/client/channel.h"
#include "rendezvous/client/tls_probe.h"
#include "rendezvous/wire/grpc_setup.h"

namespace dtrun::rendezvous {

Dialled Connector::dial(const std::string& host, int port, std::chrono::milliseconds timeout,
                        const std::function<bool()>& wanted) {
  const auto dialling = std::make_shared<Interrupt>();
  {
    const std::lock_guard lock(mutex_);
    dialling_ = dialling;
  }
  // Set before interrupted_ is read: let_go() sees a thread that resolves, or the thread will not resolve.
  resolving_ = true;
  Dialled dialled;
  dialled.error = "interrupted";
  if (!interrupted_ && wanted()) dialled = rendezvous::dial(host, port, timeout, *dialling);
  resolving_ = false;
  const std::lock_guard lock(mutex_);
  dialling_.reset();
  return dialled;
}

std::shared_ptr<grpc::Channel> Connector::open(const std::string& host, const Dialled& dialled, int port,
                                               const grpc::ChannelArguments& arguments) const {
  return open_channel(dialled, port, key_for(host), arguments);
}

Status Connector::compare_keys(const std::string& host, int port, std::chrono::milliseconds timeout) const {
  return rendezvous::compare_keys(host, port, key_for(host), timeout, interrupt_);
}

ProbeAnswer Connector::probe(const std::string& host, int port, std::chrono::milliseconds timeout) const {
  return rendezvous::probe(host, port, timeout, interrupt_);
}

void Connector::interrupt_dial() {
  const std::lock_guard lock(mutex_);
  if (dialling_) dialling_->raise();
}

void Connector::interrupt() {
  interrupted_ = true;
  interrupt_.raise();
  interrupt_dial();
}

bool Connector::let_go(std::thread& thread) const {
  const bool joins = !resolving_;
  joins ? thread.join() : thread.detach();
  return joins;
}

const std::optional<JobKey>& Connector::key_for(const std::string& host) const {
  static const std::optional<JobKey> none;
  return unix_path(host) ? none : key_;
}

}  // namespace dtrun::rendezvous
