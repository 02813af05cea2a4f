// Facts that pods find without asking Kubernetes: their host name, their own line of /etc/hosts, and the
// variables that a controller sets. Jobs of the Training Operator and of Kubeflow's Trainer have PET_
// variables, which are options.
#include <algorithm>
#include <sstream>

#include "cmd/cluster/node_list.h"
#include "cmd/cluster/numbers.h"
#include "cmd/cluster/systems.h"
#include "cmd/hosts/host_words.h"
#include "proto/core/text.h"

namespace dtrun::cmd {
namespace {

std::string first_label(const std::string& name) { return name.substr(0, name.find('.')); }

// The name in DNS that the kubelet writes beside the pod's host name if the pod has a subdomain: "10.1.0.7
// mnist-1.mnist.default.svc.cluster.local mnist-1". Empty if there is none.
std::string name_in_dns(const std::string& hosts_file, const std::string& hostname) {
  for (const std::string& line : split(hosts_file)) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string address, name;
    words >> address >> name;
    if (name.starts_with(hostname + ".")) return name;
  }
  return "";
}

}  // namespace

PlaceOrNone find_indexed_job(const ClusterEnvironment& cluster, const GivenOptions& said) {
  constexpr char kIndex[] = "JOB_COMPLETION_INDEX";
  if (!has(cluster, kIndex)) return std::optional<Place>();
  const std::string hostname = first_label(cluster.hostname);
  const std::string name = name_in_dns(cluster.file("/etc/hosts"), hostname);
  const std::string suffix = "-" + text_of(cluster, kIndex);
  const bool named = hostname.ends_with(suffix) && hostname.size() > suffix.size() && !name.empty();
  // Without names for its pods the Job's tasks are not meant to meet.
  if (!named && !said.nodes) return std::optional<Place>();
  const std::string job_name = hostname.substr(0, hostname.size() - suffix.size());
  Place place{.job = named ? "Kubernetes Job " + shown(job_name) : "Kubernetes Job"};
  ASSIGN_OR_RETURN(const int index, number_of(cluster, kIndex, 0, place.job));
  place.agents = std::nullopt;
  place.rank = index;
  place.node = hostname;
  place.is_replaced = true;
  if (named) {
    const std::string subdomain = name.substr(hostname.size());
    place.first = job_name + "-0" + subdomain;
    place.next = {job_name + "-1" + subdomain, job_name + "-2" + subdomain};
    if (place.rank < 3) place.own_host = place.rank;
    place.run_id = run_id_of(job_name);
  }
  if (place.rank > 0) place.hosts = false;
  if (said.nodes) return std::optional(std::move(place));
  if (place.rank > 0)
    return Status(kExitUsage, place.job + ": this is pod " + std::to_string(place.rank) +
                                  " of an Indexed Job whose pods have names to meet by; --nnodes N or "
                                  "PET_NNODES says how many (--standalone: each pod runs alone)");
  place.agents = 1;
  place.alone = "its pods have names to meet by; --nnodes N or PET_NNODES says how many";
  return std::optional(std::move(place));
}

PlaceOrNone find_leader_worker_set(const ClusterEnvironment& cluster, const GivenOptions&) {
  if (!has(cluster, "LWS_LEADER_ADDRESS")) return std::optional<Place>();
  ASSIGN_OR_RETURN(Place place,
                   place_of_node(cluster, "LeaderWorkerSet", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX"));
  place.node = first_label(cluster.hostname);
  place.is_replaced = true;
  place.first = text_of(cluster, "LWS_LEADER_ADDRESS");
  place.run_id = run_id_of(first_label(place.first));
  return std::optional(std::move(place));
}

// VC_TASK_HOSTS names the pods of each of the job's tasks; the one that the pod itself is in has its name.
PlaceOrNone find_volcano(const ClusterEnvironment& cluster, const GivenOptions&) {
  if (!has(cluster, "VC_TASK_INDEX") && !has(cluster, "VK_TASK_INDEX")) return std::optional<Place>();
  const std::string job = "Volcano", hostname = first_label(cluster.hostname);
  std::vector<std::vector<std::string>> tasks;
  for (const auto& [name, value] : cluster.variables) {
    if (!name.starts_with("VC_") || !name.ends_with("_HOSTS") || value.empty()) continue;
    auto hosts = parse_node_list(value);
    if (!hosts.ok())
      return contradiction(job, shown(name) + "=" + shown(value) + ": " + hosts.status().message());
    // The master has rank 0, by whatever letter its name begins.
    const bool is_master = name == "VC_MASTER_HOSTS";
    tasks.insert(is_master ? tasks.begin() : tasks.end(), std::move(hosts).value());
  }
  std::vector<std::string> pods;
  for (const auto& hosts : tasks) pods.insert(pods.end(), hosts.begin(), hosts.end());
  const auto self = std::ranges::find(pods, hostname, first_label);
  if (pods.empty()) return std::optional<Place>();
  if (self == pods.end())
    return contradiction(job, "this pod, " + shown(hostname) + ", is not among VC_…_HOSTS");
  Place place{.job = job};
  place.agents = static_cast<int>(pods.size());
  place.rank = static_cast<int>(self - pods.begin());
  place.node = hostname;
  place.is_replaced = true;
  place.first = pods.front();
  if (place.rank > 0) place.hosts = false;
  // Pods are JOB-TASK-INDEX, in the subdomain JOB.
  if (const std::size_t dot = pods.front().find('.'); dot != std::string::npos)
    place.run_id = run_id_of(first_label(pods.front().substr(dot + 1)));
  return std::optional(std::move(place));
}

}  // namespace dtrun::cmd
