// dtrun-worker: one rank of the built-in trainer. Started by a dtrun agent, which gives it the job over the
// control socket; everything that goes wrong becomes one line, one message to the agent and an exit code.
#include "cmd/worker_main.h"

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "proto/base/log.h"
#include "proto/base/memory_limit.h"
#include "proto/core/contract.h"
#include "worker/base/error.h"
#include "worker/base/operation_log.h"
#include "worker/base/pulse.h"
#include "worker/base/stop_point.h"
#include "worker/collective/process_group.h"
#include "worker/config/tool_request.h"
#include "worker/device/cuda_device.h"
#include "worker/export/export_main.h"
#include "worker/prepare/prepare.h"
#include "worker/profile/profile.h"
#include "worker/sample/sample.h"
#include "worker/trainer/agent_protocol/control_client.h"
#include "worker/trainer/local_replicas.h"
#include "worker/trainer/recovery/save_alone.h"
#include "worker/trainer/trainer.h"

namespace dtrun::worker {
namespace {

// Ends without destructors: threads of libraries may still run, and everything that matters was written by
// now.
void end_process(int exit_code) {
  std::fflush(nullptr);
  _exit(exit_code);
}

sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  struct sigaction inherited {};
  if (sigaction(SIGHUP, nullptr, &inherited) == 0 && inherited.sa_handler != SIG_IGN)  // nohup's
    sigaddset(&signals, SIGHUP);
  return signals;
}

// Stop signals arrive on a thread of their own, where any function may be called.
void watch_signals(ControlClient& agent) {
  std::thread([&agent] {
    const sigset_t signals = stop_signals();
    for (siginfo_t info;;) {
      if (sigwaitinfo(&signals, &info) > 0) agent.signal_received(info.si_pid == getppid());
    }
  }).detach();
}

std::unique_ptr<ProcessGroup> meet_peers(const JobConfig& config, const ControlClient::Start& start,
                                         ControlClient& agent) {
  const control::Start& place = start.place;
  stop_point(StopPoint::kMeeting);
  if (place.world_size() == 1) return make_single_process_group(start.paused);
  const Pulse::WaitsForPeers alive;
  return make_gloo_process_group({.rank = place.rank(),
                                  .size = place.world_size(),
                                  .address = place.address(),
                                  .timeout = peer_patience(config.train),
                                  .stop = start.paused},
                                 agent);
}

// How this worker's part in a generation ended.
struct GenerationPart {
  std::optional<Outcome> outcome;  // none: a peer was lost, or it was told to pause at once
  std::string error;               // how its collective broke; empty if it was told to pause
};

GenerationPart take_part(Replica& replica, const ControlClient::Start& start, ControlClient& agent) {
  const control::Start& at = start.place;
  OperationLog::at(at.generation(), replica.state.step);
  try {
    const std::unique_ptr<ProcessGroup> group = meet_peers(replica.config, start, agent);
    agent.enter_training();
    const Outcome outcome =
        train(replica, {at.rank(), at.world_size(), at.local_rank(), at.generation()}, *group, agent);
    // We do not close the collective's connections: the kernel is faster, and nothing is left to send.
    if (outcome != Outcome::kPaused)
      end_process(outcome == Outcome::kCompleted ? kExitOk : kExitWorkerStopped);
    return {.outcome = outcome, .error = {}};
  } catch (const WorkerError& error) {
    if (error.exit_code() != kExitWorkerPeerLost) throw;
    return {.outcome = {}, .error = start.paused.stop_requested() ? "" : error.what()};
  }
}

// The state that an earlier process of this worker left there is taken over.
void keep_in_memory_checkpoint(Replica& replica, int descriptor) {
  try {
    replica.in_memory_checkpoint = std::make_unique<InMemoryCheckpoint>(replica, descriptor);
  } catch (const WorkerError& error) {
    log_warn(std::string("this worker keeps no copy of its state in the host's memory: ") + error.what());
  }
}

int train_for(ControlClient& agent, const CudaLaunches& launches) {
  stop_point(StopPoint::kHello);
  const control::Job job = agent.hello();
  stop_point(StopPoint::kLoading);
  const JobConfig config = value_or_throw(parse_config(job.config_json(), "config", {}));

  if (job.operations_fd() > 0) OperationLog::open(job.operations_fd());
  agent.report(Progress());
  const Datasets data = load_datasets(config, job.data_fd() > 0 ? job.data_fd() : -1);
  const std::string& folder = config.output_dir;
  const std::filesystem::path plans =
      folder.empty() ? "" : std::filesystem::path(folder) / "cudnn_plans.json";
  Replica replica(config, data, job.lanes(),
                  job.device() == "cuda" ? make_cuda_device(job.gpu(), plans, launches) : make_cpu_device());
  // Local replicas keep theirs in the workers.
  if (job.in_memory_checkpoint_fd() > 0 && !config.train.has_local_replicas())
    keep_in_memory_checkpoint(replica, job.in_memory_checkpoint_fd());
  control::Ready ready;
  for (;;) {
    stop_point(StopPoint::kReady);
    const std::optional<ControlClient::Start> start = agent.ready(ready);
    if (!start) break;
    const GenerationPart part = take_part(replica, *start, agent);
    ready.set_error(part.error);
    if (replica.state.has_values) ready.set_step(replica.state.step);
  }
  save_alone(replica);
  return kExitWorkerStopped;
}

// For dtrun, which links no math: prints the facts that the results of a worker with the config on standard
// input would depend on.
int tell_fingerprint() {
  try {
    const std::string text(std::istreambuf_iterator<char>(std::cin), {});
    const JobConfig config = value_or_throw(parse_config(text, "config", {}));
    std::puts(fingerprint_on_cpu(config).c_str());
    return kExitOk;
  } catch (const WorkerError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
}

// A failure that ends the job is in its report, once for all ranks with the same one. After any other failure
// the job may go on, and this is its only message.
int fail(ControlClient& agent, int exit_code, const std::string& message) {
  if (!is_deterministic_failure(exit_code)) std::fprintf(stderr, "%s\n", message.c_str());
  agent.send_fault(exit_code, message);
  return exit_code;
}

int run(ControlClient& agent, const CudaLaunches& launches) {
  try {
    return train_for(agent, launches);
  } catch (const WorkerError& error) {
    return fail(agent, error.exit_code(), error.what());
  } catch (const std::bad_alloc&) {
    const auto limit = memory_limit();
    return fail(
        agent, kExitOsError,
        "out of memory" +
            (limit ? " within its limit of " + std::to_string(*limit >> 20) + " MiB (ulimit -v)" : "") +
            "; fewer workers, lanes or a smaller micro_batch_size need less");
  } catch (const std::system_error& error) {
    return fail(agent, kExitOsError,
                std::string("the machine refuses what a worker needs: ") + error.what() + " (see ulimit -a)");
  } catch (const std::exception& error) {
    return fail(agent, kExitSoftware, std::string("a bug in dtrun: ") + error.what());
  }
}

// The tool's exit code, if `arguments` ask for this one.
template <typename Request>
std::optional<int> try_tool(int (*tool)(const Request&), std::string_view name,
                            const std::vector<std::string>& arguments) {
  const auto request = name == Request::kTool ? request_of<Request>(arguments) : std::nullopt;
  return request ? std::optional(tool(*request)) : std::nullopt;
}

// What dtrun hands over of its own commands; nothing: no tool was asked for.
std::optional<int> run_tool(std::string_view name, const std::vector<std::string>& arguments) {
  if (name == ProfileRequest::kTool) set_up_log("dtrun");
  auto exit_code = try_tool(prepare_main, name, arguments);
  if (!exit_code) exit_code = try_tool(sample_main, name, arguments);
  if (!exit_code) exit_code = try_tool(export_main, name, arguments);
  return exit_code ? exit_code : try_tool(profile_main, name, arguments);
}

}  // namespace

int worker_main(int argc, char** argv) { return worker_main(argc, argv, CudaLaunches{}); }

int worker_main(int argc, char** argv, const CudaLaunches& launches) {
  if (argc > 1 && std::strcmp(argv[1], "--version") == 0) {
    std::printf("dtrun-worker %s, protocol %u\n", DTRUN_VERSION, kControlProtocol);
    return kExitOk;
  }
  if (argc > 1 && std::strcmp(argv[1], "fingerprint") == 0) return tell_fingerprint();
  if (argc > 1)
    if (const auto exit_code = run_tool(argv[1], {argv + 2, argv + argc})) return *exit_code;
  const char* fd = std::getenv(kEnvControlFd);
  if (fd == nullptr || argc > 1) {
    std::fputs("dtrun-worker is started by dtrun; try: dtrun CONFIG.json\n", stderr);
    return kExitUsage;
  }
  share_heap_under_limit();
  const sigset_t signals = stop_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // Slurm may send the signals of its --signal to all processes of a step; they are the agent's.
  for (const int number : {SIGUSR1, SIGUSR2}) std::signal(number, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);  // gloo writes to sockets whose peer may be gone
  std::signal(SIGXFSZ, SIG_IGN);  // a file that grows too large is then an error of writing
  set_up_log("");
  auto* agent = new ControlClient(std::atoi(fd), end_process);
  watch_signals(*agent);
  const int exit_code = run(*agent, launches);
  end_process(exit_code);
  return exit_code;
}

}  // namespace dtrun::worker
