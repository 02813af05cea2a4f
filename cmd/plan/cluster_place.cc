#include "cmd/plan/cluster_place.h"

#include <algorithm>
#include <string_view>

#include "cmd/plan/rendezvous_options.h"
#include "proto/core/contract.h"

namespace dtrun::cmd {
namespace {

// True if the options give a whole place, so that none is needed from the cluster.
bool places_itself(const Options& typed) {
  const std::string backend = rendezvous_backend(typed);
  return typed.flag("standalone") || backend == "env" || backend == "static";
}

GivenOptions said_by(const Options& options) {
  const auto endpoint = options.given("rdzv_endpoint");
  return {.nodes = options.has("nnodes"),
          .endpoint = (endpoint && !endpoint->value.empty()) || options.has("master_addr")};
}

std::string one_dtrun_on_each(const Place& place) {
  return place.one_per_node.empty() ? "" : ", or start one dtrun on each node: " + place.one_per_node;
}

Status check_nodes(const Place& place, const Given& given) {
  ASSIGN_OR_RETURN(const NodeCount nodes, parse_nodes(given));
  if (!place.alone.empty() && nodes.max > 1)
    return usage(quoted(given) + ": " + place.job + " runs this on one node; " + place.alone);
  if (!place.agents || !place.alone.empty()) return {};
  if (nodes.min <= *place.agents && *place.agents <= nodes.max) return {};
  const std::string has = place.several_tasks ? " tasks, each of them a node of one worker" : " nodes";
  return usage(quoted(given) + ": " + place.job + " has " + std::to_string(*place.agents) + has +
               "; leave it out" + (place.several_tasks ? one_dtrun_on_each(place) : ", or start as many"));
}

bool sees_one_gpu_of_several(const Draft& draft) {
  const char* const visible = draft.environment("CUDA_VISIBLE_DEVICES");
  return visible != nullptr && *visible != '\0' &&
         std::string_view(visible).find(',') == std::string_view::npos;
}

}  // namespace

Status read_place(Draft& draft) {
  if (!draft.machine.cluster) return {};
  draft.spec.may_be_started_again = may_be_started_again(*draft.machine.cluster);
  const GivenOptions said = said_by(draft.options);
  if (places_itself(draft.typed) || (said.nodes && said.endpoint)) return {};
  ASSIGN_OR_RETURN(auto found, find_place(*draft.machine.cluster, said));
  if (!found) return {};
  const Place& place = draft.place.emplace(*std::move(found));
  if (const auto nodes = draft.options.given("nnodes")) RETURN_IF_ERROR(check_nodes(place, *nodes));
  draft.spec.is_replaced = place.is_replaced;
  if (place.is_replaced) draft.spec.preferred_rank = place.rank;
  const std::string whose = place.job + "'s ";
  if (place.agents)
    draft.options.add_default("nnodes", {.value = std::to_string(*place.agents), .source = whose + "nodes"});
  if (place.agents != 1 && !place.is_replaced)
    draft.options.add_default("node_rank",
                              {.value = std::to_string(place.rank), .source = whose + "node rank"});
  if (!place.run_id.empty())
    draft.options.add_default("rdzv_id", {.value = place.run_id, .source = whose + "run id"});
  return {};
}

Status settle_workers(Draft& draft, const std::function<bool()>& uses_gpus) {
  if (!draft.place) return {};
  const Place& place = *draft.place;
  if (!place.several_tasks) {
    if (!draft.options.has("nproc_per_node") && uses_gpus())
      draft.options.add_default("nproc_per_node", {.value = "gpu", .source = place.job});
    return {};
  }
  const auto workers = draft.typed.given("nproc_per_node");
  const bool counts = workers && (workers->value == "auto" || workers->value == "gpu");
  if (workers && !counts && workers->value != "1")
    return usage(quoted(*workers) + ": " + place.job +
                 " has several tasks on a node, each of them one worker; "
                 "leave it out" +
                 one_dtrun_on_each(place));
  draft.options.values["nproc_per_node"] = {.value = "1", .source = place.job};
  // A process that sees one GPU of several was given its own, and to a program that is device 0.
  if (!sees_one_gpu_of_several(draft)) draft.spec.first_local_rank = place.local_rank;
  draft.spec.local_world_size = place.tasks;
  return {};
}

Result<std::optional<Endpoint>> endpoint_of_place(Draft& draft) {
  const Place& place = *draft.place;
  const std::string remedy =
      ": add --rdzv_endpoint HOST[:PORT], the host of its first node, the same everywhere";
  if (!place.first.empty() && !may_be_host(place.first))
    return usage(place.job + " names a first node that can be no host" + remedy);
  if (place.first.empty()) return usage(place.job + " does not say where its nodes can meet" + remedy);
  if (place.guessed && place.hosts == true && !draft.machine.is_home(place.first))
    return usage(place.job + " was started on " + place.first + ", and its first process is on another host" +
                 remedy);
  draft.meeting.hosts = {place.first};
  draft.meeting.hosts.insert(draft.meeting.hosts.end(), place.next.begin(), place.next.end());
  draft.meeting.ports = place.ports.empty() ? std::vector{kDefaultPort} : place.ports;
  draft.meeting.placement =
      Placement{.hosts = place.hosts, .own_host = place.own_host, .starts_once = place.starts_once};
  return std::optional(Endpoint{.host = place.first, .port = draft.meeting.ports.front()});
}

Status tell_place(Draft& draft) {
  if (!draft.place) return {};
  const std::vector<std::string> hosts = hosts_of(draft.spec.rendezvous.hosting);
  const std::vector<int> ports = ports_of(draft.spec.rendezvous.hosting);
  const int agents = draft.place->agents.value_or(draft.spec.nodes.max);
  draft.spec.place = place_line(*draft.place, draft.spec.nodes.max == 1 ? 1 : agents,
                                hosts.empty() ? "" : endpoint_text({hosts.front(), ports.front()}));
  return {};
}

}  // namespace dtrun::cmd
