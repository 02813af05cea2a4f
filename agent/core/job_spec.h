// The job that a user asked for, complete and checked: cmd fills it in once and hands it to the agent.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "agent/core/gpu.h"
#include "agent/core/hosting.h"
#include "proto/core/colour.h"
#include "proto/core/times.h"

namespace dtrun {

namespace rendezvous {
class JobKey;  // opaque here: rendezvous/identity/job_key.h
}

struct NodeCount {
  int min = 1;
  int max = 1;
};

// --http_port and --http_bind: the page of a coordinator that is hosted here.
struct PageSpec {
  std::optional<int> port = 0;  // 0: any free one; nothing: no page
  std::string address = {};     // empty: loopback
  bool in_pod = false;          // this node is a pod of Kubernetes
};

struct RendezvousSpec {
  Hosting hosting;
  std::string endpoint_from = "--rdzv_endpoint";  // where the coordinator's host stands, for people
  PageSpec page = {};
  // The job's key; null: none.
  std::shared_ptr<const rendezvous::JobKey> key;
  std::string local_address;   // --local_addr; empty: the address that reaches the coordinator
  std::string master_address;  // MASTER_ADDR of the workers; empty: the address of the node with rank 0
  int master_port = 0;         // MASTER_PORT of the workers; 0: a free one
  std::chrono::milliseconds last_call{5000};
  std::chrono::milliseconds join_timeout{600000};
  std::chrono::milliseconds keep_alive_timeout{15000};    // keep_alive_interval * keep_alive_max_attempt
  std::optional<std::chrono::milliseconds> read_timeout;  // how long to go on without the coordinator
};

// The targets of one stream of a worker.
struct StreamTargets {
  bool console = true;
  bool file = true;       // if there is a log directory
  bool filtered = false;  // lines that match go to the file of all ranks too
};

struct WorkerOutput {
  StreamTargets out, err;
};

// --progress: how the built-in trainer's progress is shown.
enum class ProgressMode {
  kAuto,   // kBar
  kBar,    // a bar on a terminal, elsewhere kPlain
  kPlain,  // a line now and then
  kJson,   // an object a line, on standard output
  kNone,
};
inline constexpr const char* kProgressModes[] = {"auto", "bar", "plain", "json", "none"};

// The output of an agent that a launcher on another host has started: frames of proto/launch.proto. A
// detached job's launcher is gone: it has neither `in_fd` nor `out_fd`, and writes to our own streams.
struct RemoteTerminal {
  int in_fd = -1;     // the launcher's words, read by agent/launcher_line.h
  int out_fd = -1;    // ours
  int input_fd = -1;  // a pipe to the workers' standard input, for that of the launcher; -1: none
  bool bar = false;   // it can show a line that is overwritten
  int columns = 80;
  bool colour = false;
};

struct OutputSpec {
  std::vector<WorkerOutput> workers;        // by local rank; a worker beyond them has the defaults
  std::string prefix = "[{role}:{rank}] ";  // of console lines, see agent/text/line_prefix.h
  bool timestamps = false;
  std::uint64_t max_file_size = 0;                          // bytes; 0: no limit
  std::vector<std::string> stdout_filters, stderr_filters;  // substrings
  ColourMode colour = ColourMode::kAuto;                    // of dtrun's own lines
  ProgressMode progress = ProgressMode::kAuto;
  std::optional<RemoteTerminal> remote;  // nothing: our own streams

  WorkerOutput of(int local_rank) const {
    const auto index = static_cast<std::size_t>(local_rank);
    return index < workers.size() ? workers[index] : WorkerOutput{};
  }
};

// dtrun-worker with this config.
struct BuiltinTrainer {
  std::filesystem::path worker_binary;
  std::string config_json;  // resolved, canonical: equal on all agents of the run
  std::string output_dir;
  // A process writes there already: of this run on another node, or of another run.
  bool output_dir_in_use = false;
  int lanes = 1;                   // per worker
  bool in_memory_recovery = true;  // workers outlive generations and keep their trained state
  bool cuda = false;               // its workers compute on JobSpec::gpus; else on the CPU
  bool only_agent_stops = false;   // other signals that reach its workers are not for them
  // On the CPU: the facts that determine its results' bits; empty: not known, or they may differ between
  // nodes.
  std::string processor = {};
  // Of the job, that this node has the memory for: the part of each grows as others go.
  int least_workers = 1;
  bool in_memory_checkpoints =
      false;  // each worker has memory that outlives it, for copies of its trained state
};

// Any other program.
struct ExternalProgram {
  std::vector<std::string> argv;  // argv[0] is looked up in PATH
  // Workers that say that they outlive generations (docs/worker-kit.md) may.
  bool in_memory_recovery = false;
};

struct JobSpec {
  std::string run_id;
  // The command line that looks what keeps the nodes from meeting; empty: none is told.
  std::string doctor = {};
  NodeCount nodes;
  int nproc = 1;                 // workers on this node
  std::optional<int> node_rank;  // --node_rank
  // The node's number in its cluster, if it does not claim that rank: for the first generation, and for free
  // ranks.
  std::optional<int> preferred_rank;
  std::string topology;  // --topology; empty: not known
  std::string place;     // in the job of a cluster, for people; empty: no cluster said
  // If several agents of the job share the host: the local rank of the first worker of this one, and the
  // number of workers on the host (0: those of this agent).
  int first_local_rank = 0;
  int local_world_size = 0;
  int cpus = 0;         // that it may use; 0: not known
  std::string cpus_by;  // the limit's source, if it is not the machine: "cpu.max of its control group /"
  bool may_be_started_again = false;  // a scheduler tells when to stop: kExitStartAgain
  bool is_replaced = false;           // if it is lost, another process is started in its place: kLostExits
  RendezvousSpec rendezvous;
  int max_restarts = 0;  // job-wide
  // This number of similar failures in a row, soon after the start, ends the job; 0: they only slow it down.
  int crash_loop_limit = 0;
  // Exit codes of other programs after which a restart would not help: inclusive ranges. The built-in trainer
  // has its own.
  std::vector<std::pair<int, int>> no_restart_exit_codes = {{2, 2}, {64, 78}};
  std::chrono::milliseconds shutdown_timeout{30000};
  std::vector<int> signals_to_handle;  // that end the job, beside SIGTERM, SIGINT, SIGHUP and SIGQUIT
  std::chrono::milliseconds heartbeat_timeout{0};  // a worker without progress this long hangs; 0: never
  std::chrono::milliseconds stall_timeout{0};      // without output and CPU time they all hang; 0: never
  // People are told of workers that get nothing done for so long; none: hang_settings() knows; 0: never.
  std::optional<std::chrono::milliseconds> notice_after;
  std::filesystem::path log_dir;  // empty: console only
  std::string on_event;           // a shell's command for events; empty: none
  OutputSpec output;
  std::string role = "default";
  int omp_num_threads = 1;          // for workers, unless the user's environment sets it
  bool virtual_local_rank = false;  // LOCAL_RANK is 0, and CUDA_VISIBLE_DEVICES the worker's own GPU
  std::vector<std::vector<int>> worker_cpus;  // by local rank; empty: no binding
  std::vector<Gpu> gpus;  // by local rank, one each; empty: none, or it is not known which
  std::vector<std::string>
      gpu_reader;  // command that tells how the GPUs are; empty: they are not looked after
  Times times = {};
  std::string device;  // "cuda, 8 GPUs (NVIDIA H200)", and why; empty: a program's affair
  std::variant<BuiltinTrainer, ExternalProgram> program;

  // How the run's job text differs from ours, for the message when the coordinator refuses us because of it;
  // may be empty.
  std::function<std::string(const std::string& theirs)> describe_difference;
};

inline bool in_memory_recovery(const JobSpec& spec) {
  return std::visit([](const auto& program) { return program.in_memory_recovery; }, spec.program);
}

}  // namespace dtrun
