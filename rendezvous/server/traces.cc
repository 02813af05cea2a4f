#include "rendezvous/server/traces.h"

#include <algorithm>
#include <utility>

namespace dtrun::rendezvous {

void Traces::begin(v1::TraceReply reply, std::map<ConnectionId, std::string> nodes, Millis now, Told told) {
  const auto call = calls_
                        .emplace(next_++, PendingTrace{.reply = std::move(reply),
                                                       .awaited = std::move(nodes),
                                                       .until = now + kPatience,
                                                       .told = std::move(told)})
                        .first;
  if (call->second.awaited.empty()) settle(call);
}

// A call's nodes are asked in the order of calls, and answer so: the oldest one that awaits the node is
// meant, unless that was given up.
void Traces::answered(ConnectionId node, v1::TracePart part, std::int64_t received_at) {
  const auto call =
      std::ranges::find_if(calls_, [node](const auto& one) { return one.second.awaited.contains(node); });
  if (call == calls_.end()) return;
  v1::NodeTrace* const trace = call->second.reply.add_nodes();
  trace->set_host(call->second.awaited.at(node));
  *trace->mutable_part() = std::move(part);
  trace->set_received_at(received_at);
  trace->set_node(node);
  call->second.awaited.erase(node);
  if (call->second.awaited.empty()) settle(call);
}

void Traces::gone(ConnectionId node) {
  for (auto call = calls_.begin(); call != calls_.end();) {
    const auto here = call++;
    const auto awaited = here->second.awaited.find(node);
    if (awaited == here->second.awaited.end()) continue;
    here->second.reply.add_silent(awaited->second);
    here->second.awaited.erase(awaited);
    if (here->second.awaited.empty()) settle(here);
  }
}

Millis Traces::tend(Millis now) {
  while (!calls_.empty() && calls_.begin()->second.until <= now) settle(calls_.begin());
  return calls_.empty() ? kNever : calls_.begin()->second.until;
}

void Traces::forget_all() {
  while (!calls_.empty()) settle(calls_.begin());
}

void Traces::settle(std::map<std::uint64_t, PendingTrace>::iterator call) {
  PendingTrace settled = std::move(call->second);
  calls_.erase(call);
  for (const auto& [node, host] : settled.awaited) settled.reply.add_silent(host);
  settled.told(std::move(settled.reply));
}

}  // namespace dtrun::rendezvous
