// Slurm tells each task of a step everything. A job's script and the shell of salloc are no tasks: there
// SLURM_STEP_ID is missing, or one of the numbers that Slurm keeps for them.
#include <algorithm>
#include <cstdint>
#include <numeric>

#include "cmd/cluster/node_list.h"
#include "cmd/cluster/numbers.h"
#include "cmd/cluster/port_row.h"
#include "cmd/cluster/systems.h"
#include "cmd/hosts/host_words.h"
#include "proto/core/number.h"

namespace dtrun::cmd {
namespace {

// Numbers from here on are those of batch scripts, interactive shells and other special steps (slurm.h).
constexpr std::uint32_t kFirstSpecialStep = 0xfffffff0;

// The number of hosts that may have the coordinator: one of three may be lost.
constexpr int kHosts = 3;

// Job numbers are up to 2^26, with clusters of clusters up to 2^32.
std::optional<std::uint32_t> number_in(const ClusterEnvironment& cluster, const std::string& name) {
  return parse_number<std::uint32_t>(text_of(cluster, name));
}

struct SlurmStep {
  int nodes = 1, node = 0;
  int tasks = 1, task = 0, local_task = 0;
  std::vector<std::string> names = {};  // of the nodes
  std::vector<int> tasks_of_nodes = {};
};

template <typename List>
Status misread(const ClusterEnvironment& cluster, const std::string& job, const char* name,
               const Result<List>& list) {
  return contradiction(
      job, std::string(name) + "=" + shown(text_of(cluster, name)) + ": " + list.status().message());
}

Status read_lists(const ClusterEnvironment& cluster, const std::string& job, SlurmStep* step) {
  constexpr char kNodes[] = "SLURM_STEP_NODELIST", kTasks[] = "SLURM_STEP_TASKS_PER_NODE";
  auto names = parse_node_list(text_of(cluster, kNodes));
  if (!names.ok()) return misread(cluster, job, kNodes, names);
  auto tasks = parse_counts(text_of(cluster, kTasks));
  if (!tasks.ok()) return misread(cluster, job, kTasks, tasks);
  step->names = std::move(names).value();
  step->tasks_of_nodes = std::move(tasks).value();
  return {};
}

std::string counted(const char* name, long number) {
  return std::string(name) + " " + std::to_string(number);
}

// Slurm itself always agrees with itself; a variable that a user exported may not.
Status check(const std::string& job, const SlurmStep& step) {
  const auto differ = [&](const std::string& one, const std::string& other) {
    return contradiction(job, "its variables contradict each other (" + one + ", " + other + ")");
  };
  const long names = static_cast<long>(step.names.size()),
             counts = static_cast<long>(step.tasks_of_nodes.size());
  if (names != step.nodes) return differ(counted("nodes", step.nodes), counted("names of nodes", names));
  if (counts != step.nodes) return differ(counted("nodes", step.nodes), counted("nodes with tasks", counts));
  const long sum = std::accumulate(step.tasks_of_nodes.begin(), step.tasks_of_nodes.end(), 0L);
  if (sum != step.tasks) return differ(counted("tasks", step.tasks), counted("tasks on all nodes", sum));
  if (step.node >= step.nodes) return differ(counted("nodes", step.nodes), counted("node", step.node));
  if (step.task >= step.tasks) return differ(counted("tasks", step.tasks), counted("task", step.task));
  const int here = step.tasks_of_nodes[static_cast<std::size_t>(step.node)];
  if (step.local_task < here) return {};
  return differ(counted("tasks on this node", here), counted("task on this node", step.local_task));
}

// Slurm gives a step some of a node's CPUs, and need not hold it to them.
std::optional<int> cpus_of_task(const ClusterEnvironment& cluster, int tasks_here) {
  constexpr int kMost = 1 << 20;
  const auto per_task = whole_number(text_of(cluster, "SLURM_CPUS_PER_TASK"), kMost);
  if (per_task && *per_task > 0) return per_task;
  const auto on_node = whole_number(text_of(cluster, "SLURM_CPUS_ON_NODE"), kMost);
  if (!on_node || *on_node == 0) return std::nullopt;
  return std::max(1, *on_node / tasks_here);
}

PlaceOrNone place_in_step(const ClusterEnvironment& cluster, std::uint32_t job_number,
                          std::uint32_t step_number) {
  const std::string id = std::to_string(job_number) + "." + std::to_string(step_number);
  Place place{.job = "Slurm step " + id};
  SlurmStep step;
  RETURN_IF_ERROR(read_numbers(cluster, place.job,
                               {{"SLURM_STEP_NUM_NODES", 1, &step.nodes},
                                {"SLURM_NODEID", 0, &step.node},
                                {"SLURM_STEP_NUM_TASKS", 1, &step.tasks},
                                {"SLURM_PROCID", 0, &step.task},
                                {"SLURM_LOCALID", 0, &step.local_task}}));
  RETURN_IF_ERROR(read_lists(cluster, place.job, &step));
  RETURN_IF_ERROR(check(place.job, step));
  place.several_tasks = std::ranges::any_of(step.tasks_of_nodes, [](int tasks) { return tasks > 1; });
  place.agents = place.several_tasks ? step.tasks : step.nodes;
  place.rank = place.several_tasks ? step.task : step.node;
  place.node = step.names[static_cast<std::size_t>(step.node)];
  place.first = step.names.front();
  place.hosts = step.node == 0 && step.local_task == 0;
  if (step.nodes >= kHosts) place.next.assign(step.names.begin() + 1, step.names.begin() + kHosts);
  if (step.node < kHosts && step.local_task == 0) place.own_host = step.node;
  place.starts_once = true;
  // The steps of a job have rows of their own, also when they run at once.
  place.ports = port_row(std::uint64_t{job_number} * 31 + step_number);
  place.run_id = id;
  place.tasks = step.tasks_of_nodes[static_cast<std::size_t>(step.node)];
  place.local_rank = step.local_task;
  place.cpus = cpus_of_task(cluster, place.tasks);
  place.one_per_node = "srun -N" + std::to_string(step.nodes) + " --ntasks-per-node=1";
  return std::optional(std::move(place));
}

}  // namespace

bool is_slurm_task(const ClusterEnvironment& cluster) {
  return number_in(cluster, "SLURM_STEP_ID").value_or(kFirstSpecialStep) < kFirstSpecialStep;
}

PlaceOrNone find_slurm(const ClusterEnvironment& cluster, const GivenOptions&) {
  const auto job = number_in(cluster, "SLURM_JOB_ID");
  if (is_slurm_task(cluster)) {
    if (job) return place_in_step(cluster, *job, *number_in(cluster, "SLURM_STEP_ID"));
    return contradiction("Slurm",
                         "SLURM_STEP_ID is set, but SLURM_JOB_ID=" + shown(text_of(cluster, "SLURM_JOB_ID")));
  }
  if (has(cluster, "SLURM_STEP_ID") && !number_in(cluster, "SLURM_STEP_ID"))
    return contradiction("Slurm",
                         "SLURM_STEP_ID=" + shown(text_of(cluster, "SLURM_STEP_ID")) + " is no number");
  const auto nodes = whole_number(text_of(cluster, "SLURM_JOB_NUM_NODES"), 1 << 20);
  if (!job || !nodes || *nodes < 2) return std::optional<Place>();
  return std::optional(Place{.job = "Slurm job " + std::to_string(*job),
                             .alone = "the job has " + std::to_string(*nodes) +
                                      "; srun --ntasks-per-node=1 before dtrun starts it on all of them"});
}

}  // namespace dtrun::cmd
