// This process's place in a job, from the cluster that started it: which node it is, of how many, and where
// they meet. So `srun dtrun CONFIG.json` is a whole command line, and an image's entrypoint too. Pure.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "proto/core/status.h"

namespace dtrun::cmd {

// A process's view of the cluster that started it.
struct ClusterEnvironment {
  std::map<std::string, std::string> variables = {};
  std::string hostname = {};
  // A file's text; empty if it cannot be read.
  std::function<std::string(const std::string& path)> file = [](const std::string&) { return ""; };
};

// The facts that options already give; they count more than the cluster's.
struct GivenOptions {
  bool nodes = false;     // --nnodes
  bool endpoint = false;  // --rdzv_endpoint or --master_addr
};

struct Place {
  std::string job = {};  // for people: "Slurm step 4711.0"
  // A remark for people if this process runs alone although the job has more: how to use the other nodes.
  std::string alone = {};
  // Agents of the job: one on each node, or one for each task if a node has several. Nothing: the cluster
  // does not say, so an option must.
  std::optional<int> agents = 1;
  int rank = 0;  // of this one
  // If this process is lost, another one comes in its place, perhaps before that is known: the rank is
  // preferred, not claimed.
  bool is_replaced = false;
  std::string node = {};   // this node's name; empty: not known
  std::string first = {};  // the host of the agent with rank 0, with the coordinator; empty: not known
  // The hosts that take the coordinator over, in this order, if `first` is lost: those of ranks 1 and 2.
  // Empty: not known.
  std::vector<std::string> next = {};
  int own_host = -1;               // this process's place among `first` and `next`; -1: it hosts none
  bool starts_once = false;        // all are started together, none in place of one that has ended
  bool guessed = false;            // `first` may be another host, from which the job was started
  std::optional<bool> hosts = {};  // whether this agent hosts it; nothing: it finds out by the name
  std::vector<int> ports = {};  // on which it may be, the first free one in this order; empty: the usual one
  std::string run_id = {};      // empty: the cluster has no name for the job
  // Tasks of the job on this host. If there are several, each is one worker, of this local rank.
  int tasks = 1;
  int local_rank = 0;
  bool several_tasks = false;    // on some node of the job
  std::optional<int> cpus = {};  // that this task may use
  // How to get one agent on each node: "srun -N4 --ntasks-per-node=1". For messages.
  std::string one_per_node = {};
};

// Finds this process's place in its cluster. Nothing outside of any cluster that dtrun knows, and in a
// process that a dtrun's worker started. EX_USAGE if the cluster's facts make no sense, or no job can come of
// them; the message says what to type.
Result<std::optional<Place>> find_place(const ClusterEnvironment& cluster, const GivenOptions& said);

// True if a scheduler tells this process when to stop, and may start the job again.
bool may_be_started_again(const ClusterEnvironment& cluster);

// "Slurm step 4711.0: node 2 of 4 (n3), coordinator n1:53127". `endpoint` is empty for a single agent.
std::string place_line(const Place& place, int agents, const std::string& endpoint);

}  // namespace dtrun::cmd
