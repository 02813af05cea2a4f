// The launchers of MPI start processes, and give each its number among them. Only some of them tell where the
// first one is.
#include "cmd/cluster/numbers.h"
#include "cmd/cluster/port_row.h"
#include "cmd/cluster/systems.h"

namespace dtrun::cmd {
namespace {

// The host of mpirun, and so most often of its first process, from "1234.0;tcp://10.0.0.1,10.1.0.1:41234".
std::string host_of_mpirun(const std::string& uri) {
  constexpr std::string_view kBefore = "tcp://";
  const std::size_t found = uri.find(kBefore);
  if (found == uri.npos) return "";
  const std::size_t begin = found + kBefore.size();
  const std::string host = uri.substr(begin, uri.find_first_of(",:;/", begin) - begin);
  return host.find_first_not_of("0123456789.") == host.npos ? host : "";
}

}  // namespace

Result<Ranks> ranks_in(const ClusterEnvironment& cluster, const std::string& job, const char* rank,
                       const char* size, const char* local_rank, const char* local_size) {
  Ranks ranks;
  RETURN_IF_ERROR(read_numbers(cluster, job,
                               {{rank, 0, &ranks.rank},
                                {size, 1, &ranks.size},
                                {local_rank, 0, &ranks.local_rank},
                                {local_size, 1, &ranks.local_size}}));
  return ranks;
}

Result<Place> place_of_process(const std::string& job, const Ranks& ranks) {
  if (ranks.rank >= ranks.size || ranks.local_rank >= ranks.local_size || ranks.local_size > ranks.size)
    return contradiction(job, "process " + std::to_string(ranks.rank) + " of " + std::to_string(ranks.size) +
                                  ", on this host " + std::to_string(ranks.local_rank) + " of " +
                                  std::to_string(ranks.local_size));
  Place place{.job = job};
  place.agents = ranks.size;
  place.rank = ranks.rank;
  place.first = ranks.local_size == ranks.size ? "localhost" : "";
  place.hosts = ranks.rank == 0;
  place.tasks = ranks.local_size;
  place.local_rank = ranks.local_rank;
  place.several_tasks = ranks.local_size > 1;
  return place;
}

PlaceOrNone find_open_mpi(const ClusterEnvironment& cluster, const GivenOptions&) {
  constexpr char kSize[] = "OMPI_COMM_WORLD_SIZE";
  if (!has(cluster, kSize)) return std::optional<Place>();
  const std::string job = "Open MPI";
  ASSIGN_OR_RETURN(const auto ranks, ranks_in(cluster, job, "OMPI_COMM_WORLD_RANK", kSize,
                                              "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"));
  if (ranks.size == 1) return std::optional<Place>();
  ASSIGN_OR_RETURN(Place place, place_of_process(job, ranks));
  const std::string uri = text_of(cluster, "OMPI_MCA_orte_hnp_uri");
  if (place.first.empty()) {
    place.first = host_of_mpirun(uri);
    place.guessed = true;
  }
  // The job's number, on every host the same.
  if (const std::string id = uri.substr(0, uri.find('.')); !id.empty()) {
    place.run_id = run_id_of("mpi-" + id);
    place.ports = port_row(uri);
  }
  place.one_per_node = "mpirun --map-by ppr:1:node";
  return std::optional(std::move(place));
}

PlaceOrNone find_pmi(const ClusterEnvironment& cluster, const GivenOptions&) {
  if (!has(cluster, "PMI_RANK") || !has(cluster, "PMI_SIZE")) return std::optional<Place>();
  const bool pals = has(cluster, "PALS_RANKID"),
             intel = has(cluster, "I_MPI_HYDRA_HOST_FILE") || has(cluster, "I_MPI_HYDRA_UUID");
  const std::string job = pals ? "PALS" : intel ? "Intel MPI" : "MPICH";
  // srun speaks PMI as well, and says the same by its own variables.
  if (is_slurm_task(cluster) && text_of(cluster, "PMI_SIZE") == text_of(cluster, "SLURM_STEP_NUM_TASKS"))
    return std::optional<Place>();
  ASSIGN_OR_RETURN(
      const auto ranks,
      pals ? ranks_in(cluster, job, "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE")
           : ranks_in(cluster, job, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"));
  if (ranks.size == 1) return std::optional<Place>();
  ASSIGN_OR_RETURN(Place place, place_of_process(job, ranks));
  place.one_per_node = "mpiexec -ppn 1";
  return std::optional(std::move(place));
}

}  // namespace dtrun::cmd
