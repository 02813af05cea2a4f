#include "agent/count_exchange.h"

#include <string>
#include <utility>

#include "proto/core/number.h"

namespace dtrun::agent {
namespace {

std::string key_of(int node) { return "dtrun/collectives/" + std::to_string(node); }

}  // namespace

CountExchange::CountExchange(const Ask& ask, std::uint64_t first_id, int node, int nodes, std::uint64_t mine,
                             std::chrono::milliseconds patience, std::function<void(const Counts&)> done)
    : first_id_(first_id),
      done_(std::move(done)),
      counts_(static_cast<std::size_t>(nodes)),
      awaited_(counts_.size()) {
  counts_[static_cast<std::size_t>(node)] = mine;
  for (int one = 0; one < nodes; ++one) {
    control::KvRequest request;
    request.set_id(first_id + static_cast<std::uint64_t>(one));
    request.set_key(key_of(one));
    if (one == node) {
      request.set_op(control::KvRequest::SET);
      request.set_value(std::to_string(mine));
    } else {
      request.set_op(control::KvRequest::GET);
      request.set_timeout_ms(patience.count());
    }
    ask(request);
  }
}

void CountExchange::take(const control::KvReply& reply) {
  const std::uint64_t node = reply.id() - first_id_;
  if (node >= counts_.size() || awaited_ == 0) return;
  if (!counts_[node] && reply.ok()) counts_[node] = parse_number<std::uint64_t>(reply.value());
  if (--awaited_ == 0) done_(counts_);
}

}  // namespace dtrun::agent
