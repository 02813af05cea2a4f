#include "rendezvous/core/admission.h"

#include <algorithm>

#include "proto/core/contract.h"

namespace dtrun::rendezvous {
namespace {

// Thirty years: keeps deadlines far from the limits of their type.
constexpr Millis kMaxTimeout = 1'000'000'000'000;

std::string nnodes(int min, int max) { return std::to_string(min) + ":" + std::to_string(max); }

Rejected other_settings(const std::string& option, const std::string& theirs, const std::string& ours) {
  return {.reason = Rejected::kOtherSettings,
          .message = option + " is " + theirs + " here but " + ours +
                     " for the agent that joined first; start every agent of a run with the same value",
          .job = ""};
}

}  // namespace

Settings settings_of(const Join& join) {
  return {.run_id = join.run_id,
          .job = join.job,
          .min_nodes = join.min_nodes,
          .max_nodes = join.max_nodes,
          .max_restarts = join.max_restarts,
          .last_call = std::min(join.last_call, kMaxTimeout),
          .join_timeout = std::min(join.join_timeout, kMaxTimeout),
          .heartbeat_timeout = std::min(join.heartbeat_timeout, kMaxTimeout)};
}

std::optional<Rejected> refuse_malformed(const Join& join) {
  const auto refusal = [](const std::string& what) {
    return Rejected{.reason = Rejected::kOtherSettings, .message = what, .job = ""};
  };
  if (join.member_id.empty()) return refusal("the agent sent no member id");
  if (join.min_nodes < 1 || join.max_nodes < join.min_nodes || join.max_nodes > kMaxNodes)
    return refusal("--nnodes " + nnodes(join.min_nodes, join.max_nodes) +
                   " is not 1 <= MIN <= MAX <= " + std::to_string(kMaxNodes));
  if (join.nproc < 1 || join.nproc > kMaxWorkersPerNode)
    return refusal("--nproc_per_node " + std::to_string(join.nproc) + " is not within 1 and " +
                   std::to_string(kMaxWorkersPerNode));
  if (join.last_call < 0 || join.join_timeout <= 0 || join.heartbeat_timeout <= 0)
    return refusal("a timeout of the rendezvous is not positive");
  return std::nullopt;
}

std::optional<Rejected> refuse_other(const Settings& run, const Join& join) {
  if (join.run_id != run.run_id)
    return Rejected{.reason = Rejected::kOtherRun,
                    .message = "this coordinator serves run \"" + run.run_id + "\", not \"" + join.run_id +
                               "\"; give all agents the same --rdzv_id, or this run an endpoint of its own",
                    .job = ""};
  if (join.min_nodes != run.min_nodes || join.max_nodes != run.max_nodes)
    return other_settings("--nnodes", nnodes(join.min_nodes, join.max_nodes),
                          nnodes(run.min_nodes, run.max_nodes));
  if (join.max_restarts != run.max_restarts)
    return other_settings("--max_restarts", std::to_string(join.max_restarts),
                          std::to_string(run.max_restarts));
  if (join.job != run.job)
    return Rejected{.reason = Rejected::kOtherJob,
                    .message = "the job differs from the one of the agent that joined run \"" + run.run_id +
                               "\" first; start every agent of a run with the same config",
                    .job = run.job};
  if (join.node_rank >= run.max_nodes)
    return Rejected{.reason = Rejected::kNodeRankTaken,
                    .message = "--node_rank " + std::to_string(join.node_rank) + " is not below the " +
                               std::to_string(run.max_nodes) + " nodes of --nnodes",
                    .job = ""};
  return std::nullopt;
}

Rejected refuse_node_rank(int node_rank, const std::string& host) {
  return {.reason = Rejected::kNodeRankTaken,
          .message = "--node_rank " + std::to_string(node_rank) + " is taken by the agent on " + host +
                     "; give every agent a node rank of its own",
          .job = ""};
}

}  // namespace dtrun::rendezvous
