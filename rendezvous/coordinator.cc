#include "rendezvous/coordinator.h"

#include <utility>

#include "rendezvous/convert.h"
#include "rendezvous/event_thread.h"

namespace dtrun::rendezvous {

void Coordinator::opened(ConnectionId id, std::shared_ptr<Connection> connection) {
  connections_.emplace(id, std::move(connection));
}

void Coordinator::received(const Event& event) { take(event); }

void Coordinator::broken(ConnectionId id) {
  connections_.erase(id);
  take({id, 0, StreamBroken{}});
}

Millis Coordinator::tend() {
  if (next_deadline(state_) <= steady_now()) take({0, 0, Tick{}});
  return next_deadline(state_);
}

void Coordinator::take(const Event& event) {
  for (const Action& action : step(state_, event, steady_now())) {
    const auto connection = connections_.find(action.to);
    if (connection == connections_.end()) continue;
    if (const auto* close = std::get_if<Close>(&action.body))
      connection->second->close(close->abort);
    else
      connection->second->send(to_message(action));
  }
  members_.store(static_cast<int>(state_.members.size()));
}

}  // namespace dtrun::rendezvous
