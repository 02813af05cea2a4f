#include <array>

#include "cmd/cluster/numbers.h"
#include "cmd/cluster/place.h"
#include "cmd/cluster/systems.h"
#include "cmd/hosts/host_words.h"
#include "proto/core/contract.h"

namespace dtrun::cmd {
namespace {

// The system that started a process last describes it best: mpirun runs inside of Slurm, Slurm inside of
// pods.
constexpr std::array kInnermostFirst = {
    find_open_mpi, find_pmi,         find_slurm,     find_jsrun,     find_flux,   find_leader_worker_set,
    find_volcano,  find_indexed_job, find_sky_pilot, find_aws_batch, find_lepton, find_pbs};

}  // namespace

Result<std::optional<Place>> find_place(const ClusterEnvironment& cluster, const GivenOptions& said) {
  // A worker of another dtrun inherits its agent's variables, and is no task of the cluster's.
  if (has(cluster, kEnvProcessTag)) return std::optional<Place>();
  for (const auto find : kInnermostFirst) {
    PlaceOrNone found = find(cluster, said);
    if (!found.ok() || found.value()) return found;
  }
  return std::optional<Place>();
}

bool may_be_started_again(const ClusterEnvironment& cluster) {
  return is_slurm_task(cluster) && !has(cluster, kEnvProcessTag);
}

std::string place_line(const Place& place, int agents, const std::string& endpoint) {
  std::string line = place.job + ": ";
  const std::string node = place.node.empty() ? "" : " (" + shown(place.node) + ")";
  if (agents == 1) {
    line += "one node" + node;
    return place.alone.empty() ? line : line + ", although " + place.alone;
  }
  line += (place.several_tasks ? "task " : "node ") + std::to_string(place.rank) + " of " +
          std::to_string(agents) + node;
  if (place.several_tasks) line += ", each one worker";
  return line + ", coordinator " + endpoint;
}

}  // namespace dtrun::cmd
