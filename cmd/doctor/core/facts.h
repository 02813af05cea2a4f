// What `dtrun doctor` looks at: the facts of one node, and those between the nodes of a job. Plain values
// that travel as JSON (cmd/doctor/facts_json.h). An empty text, -1 and an empty list mean: not known, or not
// there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dtrun::doctor {

struct ProgramFacts {
  std::string version = {}, build = {};  // of dtrun
  std::string plan_problem = {};  // why a job with these options would be refused here; empty: it would not
  std::string worker_path = {};
  std::string worker = {};  // what the dtrun-worker beside dtrun says of itself; empty: it does not start
  std::string worker_wanted = {};  // what one of the same version and protocol would say
  std::string config = {};         // a digest of the resolved config; empty: no config
  std::string kernel = {};
};

struct NameFacts {
  std::string host = {};                // as the kernel has it
  std::vector<std::string> means = {};  // addresses of that name
  std::string error = {};               // why there is none
  std::vector<std::string> own = {};    // addresses of this node's interfaces
  std::string endpoint = {};            // "node0:29400"
  std::string listener = {};            // there: "nobody", "dtrun", or why it is of no use
  bool has_peers = false;               // the job has other nodes
  bool endpoint_is_ours = false;        // the coordinator would be on this node
};

// The way to the endpoint, or to rank 0.
struct RouteFacts {
  std::string address = {};    // of this node on it
  std::string problem = {};    // why there is no way
  std::string interface = {};  // "eth0"; empty: the loopback
  int mtu = -1;
  int speed = -1;                    // Mbit/s, of the link
  std::int64_t errors = -1;          // packets sent or received with one, since the start of the machine
  std::int64_t packets = -1;         // all of them
  std::int64_t carrier_losses = -1;  // how often its link went down
};

struct LimitFacts {
  bool root = false;
  bool clock_synchronised = true;
  std::int64_t files = -1, most_files = -1, files_wanted = -1;  // soft and hard limit
  std::int64_t processes = -1, processes_wanted = -1;           // that may still be started
  std::int64_t locked_memory = -1;                              // bytes; -1: no limit
  std::int64_t core_size = -1;                                  // bytes; -1: no limit
  std::string core_pattern = {};
  int ptrace_scope = 0;
  std::vector<std::string> debuggers = {};  // of py-spy and gdb, those in PATH
};

struct MemoryFacts {
  std::int64_t shm_size = -1, shm_free = -1;  // bytes, of /dev/shm
  bool shm_matters = true;                    // workers of this job may share memory there
  std::vector<std::string> stale_shm = {};    // files of NCCL's there that no process has
  std::string shortage = {};                  // too little for the job, in words
  std::int64_t available = -1;                // bytes
  std::string available_by = {};              // "MemAvailable in /proc/meminfo"
  std::int64_t swap_used = -1;
};

struct CpuFacts {
  int allowed = 0;    // by affinity
  double quota = -1;  // CPUs of a control group
  std::string quota_by = {};
  int workers = 1, lanes = 1;  // of this node; lanes of each worker
  double steal = 0;            // part of the time that the hypervisor gave to others
  double others = 0;           // CPUs that processes beside this one kept busy
  std::string busiest = {};    // "stress (pid 812)"
  std::string governor = {}, scaling_driver = {};
  int numa_nodes = 1;
  std::string vectors = {};      // "AVX-512", "AVX2", "SSE2"
  std::string fingerprint = {};  // what the bits of this config's results depend on
};

struct DiskFacts {
  std::string output_dir = {};
  std::string problem = {};                  // why no checkpoint can be written there
  std::int64_t free = -1;                    // bytes
  std::int64_t checkpoint = 0;               // bytes of one
  double write_rate = -1;                    // bytes per second, with fsync
  std::string lock_problem = {};             // locks of files do not work
  std::string data = {}, data_problem = {};  // the path of the data
  double read_rate = -1;                     // bytes per second
};

struct GpuFacts {
  std::string name = {};
  bool lost = false;
  std::int64_t ecc_errors = 0;
  bool remap_pending = false, remap_failed = false;  // of rows of its memory
  std::vector<std::string> throttled = {};           // "power brake", "heat"
  int pcie_width = -1, pcie_width_most = -1;
  int links = 0, links_down = 0;  // NVLink
  std::int64_t memory = 0, memory_used = 0;
  std::vector<int> processes = {};
};

struct DeviceFacts {
  std::vector<GpuFacts> gpus = {};
  bool gpus_wanted = false;                 // the job's workers compute on GPUs
  std::string gpu_failure = {};             // why none can be seen, although a driver is here
  std::string driver = {}, cuda = {};       // "580.65.06", "13.0"
  std::string nccl = {};                    // "2.28.9"
  std::vector<std::string> xids = {};       // the newest errors of the driver in the kernel's log
  std::vector<std::string> rdma_down = {};  // ports that are not active: "mlx5_0 port 1: DOWN"
  std::vector<std::string> failing = {};    // disks and arrays: "md0: 1 of its disks is missing"
};

struct NodeFacts {
  ProgramFacts program;
  NameFacts name;
  RouteFacts route;
  LimitFacts limits;
  MemoryFacts memory;
  CpuFacts cpu;
  DiskFacts disk;
  DeviceFacts devices;
};

// From one node to another.
struct PathFacts {
  std::string address = {};  // that was tried
  std::string failure = {};  // "refused", "no answer in 2 s"; empty: reached
  std::string large = {};    // why 64 kB did not come through although the connection stood; empty: they did
  int pmtu = -1;             // bytes
  int retransmits = 0;       // segments
  double round_trip = -1, round_trip_p99 = -1,
         round_trip_least = -1;  // milliseconds; the first is the median
  double clock_offset = 0;       // seconds by which the other's clock is ahead
  double rate = -1;              // Mbit/s
  bool rate_of_cpu = false;      // the network was not what held it up
  std::string wrong_name = {};   // how its name and address do not belong together here; empty: they do
  bool name_fails = false;       // its name means another host here, or nothing
};

struct ClusterFacts {
  int wanted = 0;                     // nodes
  double waited = 0;                  // seconds until they were there, or no more were waited for
  std::vector<NodeFacts> nodes = {};  // by rank
  std::vector<std::vector<PathFacts>> paths = {};  // [from][to]; the diagonal is empty
};

}  // namespace dtrun::doctor
