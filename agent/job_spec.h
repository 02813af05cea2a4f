// What a user asked for, complete and checked: cmd fills it in once and hands it to the agent.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace dtrun {

struct NodeCount {
  int min = 1;
  int max = 1;
};

struct RendezvousSpec {
  std::string host;           // name or numeric address of the coordinator
  int port = 0;               // 0 only when standalone: any free one
  bool standalone = false;    // this agent hosts the coordinator on loopback, one node
  std::string local_address;  // --local_addr; empty: the address that reaches the coordinator
  std::chrono::milliseconds last_call{5000};
  std::chrono::milliseconds join_timeout{600000};
  std::chrono::milliseconds heartbeat_timeout{15000};  // keep_alive_interval * keep_alive_max_attempt
};

// dtrun-worker with this config.
struct BuiltinTrainer {
  std::filesystem::path worker_binary;
  std::string config_json;  // resolved, canonical: equal on all agents of the run
  std::string output_dir;
  int lanes = 1;  // per worker
};

// Any other program.
struct ExternalProgram {
  std::vector<std::string> argv;  // argv[0] is looked up in PATH
};

struct JobSpec {
  std::string run_id;
  NodeCount nodes;
  int nproc = 1;                 // workers on this node
  std::optional<int> node_rank;  // --node_rank
  RendezvousSpec rendezvous;
  int max_restarts = 0;  // job-wide
  std::chrono::milliseconds shutdown_timeout{30000};
  std::vector<int> signals_to_handle;           // that stop the job; empty: TERM, INT, HUP, QUIT
  std::chrono::milliseconds hang_heartbeat{0};  // --heartbeat-timeout: without progress this long; 0: never
  std::chrono::milliseconds hang_stall{0};      // --stall-timeout: no output and no CPU time; 0: never
  std::filesystem::path log_dir;                // empty: console only
  std::string role = "default";
  std::variant<BuiltinTrainer, ExternalProgram> program;

  // How the run's job text differs from ours, for the message when the coordinator refuses us because of it;
  // may be empty.
  std::function<std::string(const std::string& theirs)> describe_difference;
};

}  // namespace dtrun
