#include "agent/link.h"

#include <sys/eventfd.h>

#include "agent/local_address.h"

namespace dtrun::agent {

Link::Link(Loop& loop, Sink sink)
    : loop_(loop), sink_(std::move(sink)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  loop_.watch(wake_.get(), EPOLLIN, [this](std::uint32_t) { deliver(); });
}

Link::~Link() {
  client_.reset();
  loop_.forget(wake_.get());
}

Result<std::unique_ptr<Link>> Link::start(const RendezvousSpec& spec, Loop& loop, Sink sink) {
  std::unique_ptr<Link> link(new Link(loop, std::move(sink)));
  if (Status status = link->host(spec); !status.ok()) return status;
  const std::string host = spec.standalone ? "127.0.0.1" : spec.host;
  const int port = link->server_ ? link->server_->port() : spec.port;
  const bool bare_ipv6 = host.find(':') != std::string::npos;
  link->endpoint_ = (bare_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
  rendezvous::ClientOptions options;
  options.host = host;
  options.port = port;
  link->client_ = rendezvous::Client::start(
      options, [raw = link.get()](rendezvous::ClientEvent e) { raw->post(std::move(e)); });
  return link;
}

// A port that is taken is no failure unless standalone: another agent of this host may hold it, and what is
// there instead the client finds out.
Status Link::host(const RendezvousSpec& spec) {
  const std::optional<std::string> address = spec.standalone ? "127.0.0.1" : listen_address(spec.host);
  if (!address) return {};
  auto server = rendezvous::Server::start({*address, spec.standalone ? 0 : spec.port});
  if (server.ok()) {
    server_ = std::move(server).value();
    return {};
  }
  return spec.standalone ? server.status() : Status();
}

void Link::post(rendezvous::ClientEvent event) {
  {
    std::lock_guard lock(mailbox_mutex_);
    mailbox_.push_back(std::move(event));
  }
  eventfd_write(wake_.get(), 1);
}

void Link::deliver() {
  eventfd_t ignored;
  eventfd_read(wake_.get(), &ignored);
  std::deque<rendezvous::ClientEvent> events;
  {
    std::lock_guard lock(mailbox_mutex_);
    events.swap(mailbox_);
  }
  for (auto& event : events) sink_(std::move(event));
}

}  // namespace dtrun::agent
