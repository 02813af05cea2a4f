// What is known of a node, and of the paths between the nodes of a job. Plain values that travel as JSON
// (cmd/check/check_json.h). An empty text, -1 and an empty list mean: not known, or not there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dtrun::cmd {

struct NodeFacts {
  std::string dtrun = {};      // its version and build
  std::string config = {};     // a digest of the resolved config
  std::string processor = {};  // what the bits of this config's results depend on
  std::string refusal = {};    // why a launch would refuse the job here; empty: it would not
  std::string worker_path = {};
  std::string worker = {};  // what the dtrun-worker beside dtrun says of itself; empty: it does not start
  std::string worker_wanted = {};  // what one of the same version and protocol would say

  std::string host = {};                // as the kernel has it
  std::vector<std::string> means = {};  // addresses of that name
  std::string name_problem = {};        // why there is none
  std::vector<std::string> own = {};    // addresses of this node's interfaces
  bool has_peers = false;               // the job has other nodes
  std::string endpoint = {};            // "node0:29400"
  std::string listener = {};            // there: "nobody", "dtrun", or why it is of no use
  std::string address = {};             // of this node on the way to the endpoint, or to rank 0
  std::string route_problem = {};       // "node0: Network is unreachable"
  std::string interface = {};           // of that address, "eth0"; empty: the loopback
  int mtu = -1;                         // its

  std::string files_problem = {};              // why too few may be open
  std::int64_t files = -1, files_wanted = -1;  // that may be open
  std::int64_t shm_size = -1;                  // bytes, of /dev/shm
  bool shares_memory = true;                   // workers of this job may share memory there
  int cpus = 0;                                // by affinity
  double quota = -1;                           // CPUs of a control group
  std::string quota_by = {};
  int workers = 1, lanes = 1;  // of this node; lanes of each worker
  std::string output_dir = {};
  std::int64_t free = -1;       // bytes of its disk
  std::int64_t checkpoint = 0;  // bytes of one
  bool reads_stacks = true;     // those of workers that hang

  std::vector<std::string> gpus = {};     // their names; "": it does not answer
  std::string gpu_problem = {};           // why none can be seen, although a driver is here
  std::string driver = {};                // "580.65.06, CUDA 13.0"
  std::vector<std::string> gpu_use = {};  // by others: "GPU 1: 8.8 GiB are held by others (pid 77)"
};

// From one node to another.
struct PathFacts {
  std::string failure = {};     // "refused", "silent"; empty: reached
  bool large_fails = false;     // 64 kB did not come through although the connection stood
  double round_trip = -1;       // milliseconds, the least of several
  double rate = -1;             // Mbit/s
  bool rate_of_cpu = false;     // the network was not what held it up
  std::string wrong_name = {};  // what the other's name means here, or why nothing; empty: the other
};

struct ClusterFacts {
  int wanted = 0;                                  // nodes
  std::vector<NodeFacts> nodes = {};               // by rank
  std::vector<std::vector<PathFacts>> paths = {};  // [from][to]; the diagonal is empty
};

}  // namespace dtrun::cmd
