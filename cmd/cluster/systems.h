// Finders of this process's place, one for each system. Nothing: it was not started by this system. Pure.
#pragma once

#include <optional>
#include <string>

#include "cmd/cluster/place.h"

namespace dtrun::cmd {

using PlaceOrNone = Result<std::optional<Place>>;

PlaceOrNone find_slurm(const ClusterEnvironment& cluster, const GivenOptions& said);
PlaceOrNone find_open_mpi(const ClusterEnvironment& cluster, const GivenOptions& said);
PlaceOrNone find_pmi(const ClusterEnvironment& cluster,
                     const GivenOptions& said);  // MPICH's Hydra, Intel's, PALS
PlaceOrNone find_indexed_job(const ClusterEnvironment& cluster, const GivenOptions& said);
PlaceOrNone find_volcano(const ClusterEnvironment& cluster, const GivenOptions& said);
PlaceOrNone find_leader_worker_set(const ClusterEnvironment& cluster, const GivenOptions& said);
PlaceOrNone find_sky_pilot(const ClusterEnvironment& cluster, const GivenOptions& said);
PlaceOrNone find_aws_batch(const ClusterEnvironment& cluster, const GivenOptions& said);
PlaceOrNone find_lepton(const ClusterEnvironment& cluster, const GivenOptions& said);
PlaceOrNone find_flux(const ClusterEnvironment& cluster, const GivenOptions& said);
PlaceOrNone find_jsrun(const ClusterEnvironment& cluster, const GivenOptions& said);
PlaceOrNone find_pbs(const ClusterEnvironment& cluster, const GivenOptions& said);

// True if srun itself started this process, not just some process of a Slurm job.
bool is_slurm_task(const ClusterEnvironment& cluster);

// The place of a node from two variables: the number of nodes, and its index. EX_USAGE if the numbers don't
// fit together.
Result<Place> place_of_node(const ClusterEnvironment& cluster, const std::string& job, const char* size,
                            const char* index);

// A process's place among `size` processes, `local_size` of them on this host, as MPI's launchers count: each
// is an agent. EX_USAGE if the numbers don't fit together.
struct Ranks {
  int rank = 0, size = 1, local_rank = 0, local_size = 1;
};
Result<Place> place_of_process(const std::string& job, const Ranks& ranks);
// The numbers of these variables.
Result<Ranks> ranks_in(const ClusterEnvironment& cluster, const std::string& job, const char* rank,
                       const char* size, const char* local_rank, const char* local_size);

}  // namespace dtrun::cmd
