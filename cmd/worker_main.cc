// dtrun-worker: one rank of the built-in trainer. Started by a dtrun agent, which gives it the job over the
// control socket; everything that goes wrong becomes one line, one message to the agent and an exit code.
#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <thread>

#include "proto/base/log.h"
#include "proto/core/contract.h"
#include "worker/base/error.h"
#include "worker/base/pulse.h"
#include "worker/collective/collective.h"
#include "worker/trainer/control_client.h"
#include "worker/trainer/trainer.h"

namespace dtrun::worker {
namespace {

// How long a worker whose collective broke waits for its agent's order.
constexpr std::chrono::seconds kOrderPatience{30};

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
  return signals;
}

// Stop signals arrive on a thread of their own, where any function may be called.
void watch_signals(ControlClient& agent) {
  std::thread([&agent] {
    const sigset_t signals = stop_signals();
    for (int signal = 0;;) {
      if (sigwait(&signals, &signal) == 0) agent.signal_received();
    }
  }).detach();
}

Place from_wire(const control::Place& place) {
  return {place.rank(), place.world_size(), place.local_rank(), place.generation()};
}

std::unique_ptr<Collective> meet_peers(const Place& place, const std::string& address, ControlClient& agent) {
  if (place.world_size == 1) return make_single_process_collective();
  const Pulse::WaitsForPeers alive;
  return make_gloo_collective({place.rank, place.world_size, address}, agent);
}

int train_for(ControlClient& agent) {
  const control::Start start = agent.hello();
  Result<JobConfig> config = parse_config(start.config_json(), "config", {});
  if (!config.ok()) throw WorkerError(config.status().exit_code(), config.status().message());
  const Place place = from_wire(start.place());

  TrainingProgress loading;
  agent.report(loading);
  const Datasets data = load_datasets(config.value());
  Replica replica(config.value(), data, start.lanes());
  const std::unique_ptr<Collective> collective = meet_peers(place, start.address(), agent);
  agent.enter_training();
  const Outcome outcome = train(replica, place, *collective, agent);
  // We do not close the collective's connections: the kernel is faster, and nothing is left to send.
  end_process(outcome == Outcome::kCompleted ? kExitOk : kExitWorkerStopped);
  return kExitOk;
}

int fail(ControlClient& agent, int exit_code, const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  agent.send_fault(exit_code, message);
  return exit_code;
}

int run(ControlClient& agent) {
  try {
    return train_for(agent);
  } catch (const WorkerError& error) {
    if (error.exit_code() != kExitWorkerPeerLost) return fail(agent, error.exit_code(), error.what());
    // We were told to stop, and a peer ended before us: nothing is wrong.
    if (agent.stop_requested()) return kExitWorkerStopped;
    agent.collective_broken(error.what(), kOrderPatience);
    return kExitWorkerPeerLost;
  } catch (const std::bad_alloc&) {
    return fail(agent, kExitSoftware,
                "out of memory; fewer workers, lanes or a smaller micro_batch_size need less");
  } catch (const std::exception& error) {
    return fail(agent, kExitSoftware, std::string("a bug in dtrun: ") + error.what());
  }
}

}  // namespace
}  // namespace dtrun::worker

int main(int argc, char** argv) {
  using namespace dtrun;
  if (argc > 1 && std::strcmp(argv[1], "--version") == 0) {
    std::puts("dtrun-worker " DTRUN_VERSION);
    return kExitOk;
  }
  const char* fd = std::getenv(kEnvControlFd);
  if (fd == nullptr || argc > 1) {
    std::fputs("dtrun-worker is started by dtrun; try: dtrun CONFIG.json\n", stderr);
    return kExitUsage;
  }
  const sigset_t signals = worker::stop_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // gloo writes to sockets whose peer may be gone
  set_up_log("");
  auto* agent = new worker::ControlClient(std::atoi(fd), worker::end_process);
  worker::watch_signals(*agent);
  worker::end_process(worker::run(*agent));
}
