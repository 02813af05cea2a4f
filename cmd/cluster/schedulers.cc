// Batch systems and clouds beside Slurm and Kubernetes: each by its own documentation.
#include <algorithm>
#include <sstream>

#include "cmd/cluster/numbers.h"
#include "cmd/cluster/port_row.h"
#include "cmd/cluster/systems.h"
#include "cmd/hosts/host_words.h"

namespace dtrun::cmd {
namespace {

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;)
    if (std::ranges::find(words, word) == words.end()) words.push_back(word);
  return words;
}

}  // namespace

Result<Place> place_of_node(const ClusterEnvironment& cluster, const std::string& job, const char* size,
                            const char* index) {
  Place place{.job = job};
  int agents = 1;
  RETURN_IF_ERROR(read_numbers(cluster, job, {{size, 1, &agents}, {index, 0, &place.rank}}));
  if (place.rank >= agents)
    return contradiction(job, std::string(index) + "=" + std::to_string(place.rank) + " of " + size + "=" +
                                  std::to_string(agents));
  place.agents = agents;
  place.hosts = place.rank == 0;
  return place;
}

PlaceOrNone find_sky_pilot(const ClusterEnvironment& cluster, const GivenOptions&) {
  if (!has(cluster, "SKYPILOT_NODE_RANK")) return std::optional<Place>();
  ASSIGN_OR_RETURN(Place place,
                   place_of_node(cluster, "SkyPilot", "SKYPILOT_NUM_NODES", "SKYPILOT_NODE_RANK"));
  const std::vector<std::string> addresses = words_of(text_of(cluster, "SKYPILOT_NODE_IPS"));
  if (addresses.size() != static_cast<std::size_t>(*place.agents))
    return contradiction("SkyPilot",
                         "SKYPILOT_NODE_IPS has " + std::to_string(addresses.size()) +
                             " addresses for SKYPILOT_NUM_NODES=" + std::to_string(*place.agents));
  place.node = addresses[static_cast<std::size_t>(place.rank)];
  place.first = addresses.front();
  place.run_id = run_id_of(text_of(cluster, "SKYPILOT_TASK_ID"));
  if (!place.run_id.empty()) place.ports = port_row(place.run_id);
  return std::optional(std::move(place));
}

// The main node is not told its own address; it need not be node 0.
PlaceOrNone find_aws_batch(const ClusterEnvironment& cluster, const GivenOptions&) {
  if (!has(cluster, "AWS_BATCH_JOB_NUM_NODES")) return std::optional<Place>();
  const std::string job = "AWS Batch";
  ASSIGN_OR_RETURN(Place place,
                   place_of_node(cluster, job, "AWS_BATCH_JOB_NUM_NODES", "AWS_BATCH_JOB_NODE_INDEX"));
  ASSIGN_OR_RETURN(const int main, number_of(cluster, "AWS_BATCH_JOB_MAIN_NODE_INDEX", 0, job));
  place.hosts = place.rank == main;
  const std::string address = text_of(cluster, "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS");
  place.first = !address.empty() ? address : *place.hosts ? cluster.hostname : "";
  // "5f3c…#2" on node 2.
  const std::string id = text_of(cluster, "AWS_BATCH_JOB_ID");
  place.run_id = run_id_of(id.substr(0, id.find('#')));
  return std::optional(std::move(place));
}

PlaceOrNone find_lepton(const ClusterEnvironment& cluster, const GivenOptions&) {
  if (!has(cluster, "LEPTON_JOB_WORKER_INDEX")) return std::optional<Place>();
  ASSIGN_OR_RETURN(Place place,
                   place_of_node(cluster, "Lepton", "LEPTON_JOB_TOTAL_WORKERS", "LEPTON_JOB_WORKER_INDEX"));
  const std::string prefix = text_of(cluster, "LEPTON_JOB_WORKER_PREFIX"),
                    domain = text_of(cluster, "LEPTON_SUBDOMAIN");
  if (!prefix.empty() && !domain.empty()) place.first = prefix + "-0." + domain;
  place.run_id = run_id_of(prefix);
  return std::optional(std::move(place));
}

PlaceOrNone find_flux(const ClusterEnvironment& cluster, const GivenOptions&) {
  if (!has(cluster, "FLUX_TASK_RANK")) return std::optional<Place>();
  const std::string job = "Flux job " + shown(text_of(cluster, "FLUX_JOB_ID"));
  Result<Place> place = place_of_node(cluster, job, "FLUX_JOB_SIZE", "FLUX_TASK_RANK");
  if (!place.ok()) return place.status();
  int local = 0, nodes = 1;
  const Status status =
      read_numbers(cluster, job, {{"FLUX_TASK_LOCAL_ID", 0, &local}, {"FLUX_JOB_NNODES", 1, &nodes}});
  if (!status.ok()) return status;
  // Flux tells how many tasks there are on all nodes, not on this one.
  const int agents = *place.value().agents, each = (agents + nodes - 1) / nodes;
  const Ranks ranks{.rank = place.value().rank,
                    .size = agents,
                    .local_rank = local,
                    .local_size = std::max(each, local + 1)};
  place = place_of_process(job, ranks);
  if (!place.ok()) return place.status();
  place.value().run_id = run_id_of(text_of(cluster, "FLUX_JOB_ID"));
  if (!place.value().run_id.empty()) place.value().ports = port_row(text_of(cluster, "FLUX_JOB_ID"));
  place.value().one_per_node = "flux run -N" + std::to_string(nodes) + " --tasks-per-node=1";
  return std::optional(std::move(place).value());
}

// LSF's jsrun; its resource sets are not the hosts of LSB_MCPU_HOSTS, so it does not tell where the first one
// is.
PlaceOrNone find_jsrun(const ClusterEnvironment& cluster, const GivenOptions&) {
  if (!has(cluster, "JSM_NAMESPACE_RANK")) return std::optional<Place>();
  const std::string job = "LSF job " + shown(text_of(cluster, "LSB_JOBID"));
  ASSIGN_OR_RETURN(const auto ranks, ranks_in(cluster, job, "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE",
                                              "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE"));
  ASSIGN_OR_RETURN(Place place, place_of_process(job, ranks));
  place.run_id = run_id_of(text_of(cluster, "LSB_JOBID"));
  if (!place.run_id.empty()) place.ports = port_row(place.run_id);
  place.one_per_node = "jsrun -r 1";
  return std::optional(std::move(place));
}

// A job's script is task 1 of the first node; processes that pbsdsh starts on all nodes have later numbers.
PlaceOrNone find_pbs(const ClusterEnvironment& cluster, const GivenOptions&) {
  if (!has(cluster, "PBS_JOBID") || !has(cluster, "PBS_NODEFILE")) return std::optional<Place>();
  const std::string id = text_of(cluster, "PBS_JOBID"), job = "PBS job " + shown(id.substr(0, id.find('.')));
  const std::vector<std::string> nodes = words_of(cluster.file(text_of(cluster, "PBS_NODEFILE")));
  if (nodes.size() < 2) return std::optional<Place>();
  Place place{.job = job};
  if (whole_number(text_of(cluster, "PBS_TASKNUM"), 1 << 30).value_or(1) <= 1) {
    place.alone = "the job has " + std::to_string(nodes.size()) +
                  "; pbsdsh before dtrun, or --hostfile $PBS_NODEFILE, starts it on all of them";
    return std::optional(std::move(place));
  }
  ASSIGN_OR_RETURN(const int node, number_of(cluster, "PBS_NODENUM", 0, job));
  if (node >= static_cast<int>(nodes.size()))
    return contradiction(job, "PBS_NODENUM=" + std::to_string(node) + " of " + std::to_string(nodes.size()) +
                                  " nodes in $PBS_NODEFILE (pbsdsh starts one "
                                  "process on each with -u)");
  place.agents = static_cast<int>(nodes.size());
  place.rank = node;
  place.node = nodes[static_cast<std::size_t>(node)];
  place.first = nodes.front();
  place.hosts = place.rank == 0;
  place.run_id = run_id_of(id);
  place.ports = port_row(id);
  return std::optional(std::move(place));
}

}  // namespace dtrun::cmd
