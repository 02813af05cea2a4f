// The agent as a program of its own, for its process tests: agent_under_test [options] [--] PROGRAM [args…].
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "agent/agent.h"
#include "agent/local_address.h"

int main(int argc, char** argv) {
  dtrun::JobSpec spec;
  spec.run_id = "test";
  spec.rendezvous.last_call = std::chrono::milliseconds(200);
  std::string config, output_dir, gpu, host = "127.0.0.1";
  int port = 0;
  int i = 1;
  for (; i + 1 < argc && std::string(argv[i]).starts_with("--") && std::string(argv[i]) != "--"; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    const int number = std::atoi(value.c_str());
    if (name == "--nproc") spec.nproc = number;
    if (name == "--run_id") spec.run_id = value;
    if (name == "--max_restarts") spec.max_restarts = number;
    if (name == "--shutdown_ms") spec.shutdown_timeout = std::chrono::milliseconds(number);
    if (name == "--join_ms") spec.rendezvous.join_timeout = std::chrono::milliseconds(number);
    if (name == "--log_dir") spec.log_dir = value;
    if (name == "--heartbeat_ms") spec.heartbeat_timeout = std::chrono::milliseconds(number);
    if (name == "--notice_ms") spec.notice_after = std::chrono::milliseconds(number);
    if (name == "--stall_ms") spec.stall_timeout = std::chrono::milliseconds(number);
    if (name == "--signal") spec.signals_to_handle.push_back(number);
    if (name == "--nodes") spec.nodes = {number, number};
    if (name == "--min_nodes") spec.nodes.min = number;
    if (name == "--config") config = value;
    if (name == "--output_dir") output_dir = value;
    if (name == "--gpu") gpu = value;
    if (name == "--port") port = number;
    if (name == "--host") host = value;
  }
  if (port > 0)
    spec.rendezvous.hosting =
        dtrun::decide_hosting({.hosts = {host}, .ports = {port}}, dtrun::agent::addresses_for({host}))
            .hosting;
  if (i < argc && std::string(argv[i]) == "--") ++i;
  if (config.empty()) {
    spec.program = dtrun::ExternalProgram{std::vector<std::string>(argv + i, argv + argc)};
  } else {
    spec.program = dtrun::BuiltinTrainer{.worker_binary = argv[i],
                                         .config_json = config,
                                         .output_dir = output_dir,
                                         .lanes = 3,
                                         .cuda = !gpu.empty()};
    for (int rank = 0; rank < spec.nproc && !gpu.empty(); ++rank)
      spec.gpus.push_back({.index = rank, .number = rank, .name = gpu});
    spec.describe_difference = [=](const std::string& theirs) {
      return config + " here, " + theirs + " there";
    };
  }
  return dtrun::agent::run(spec);
}
