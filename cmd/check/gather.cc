#include "cmd/check/gather.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>

#include "agent/gpu/ask_gpus.h"
#include "agent/system/resource_limits.h"
#include "cmd/check/build.h"
#include "cmd/check/network.h"
#include "cmd/check/node_checks.h"
#include "cmd/machine/control_groups.h"
#include "cmd/manual/manual.h"
#include "cmd/plan/make_job_spec.h"
#include "cmd/plan/rendezvous_options.h"
#include "proto/base/answer.h"
#include "proto/base/text_in.h"
#include "proto/core/contract.h"
#include "proto/core/text.h"
#include "worker/base/sha256.h"
#include "worker/data/dataset.h"
#include "worker/memory/need.h"

namespace dtrun::cmd {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// So many characters tell configs or builds apart.
constexpr std::size_t kEnough = 12;

fs::path own_program() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error);
}

void read_programs(const JobSpec& spec, NodeFacts* facts) {
  facts->dtrun = version() + " build " + shortened(own_build(), kEnough);
  facts->worker_path = own_program().parent_path() / "dtrun-worker";
  facts->worker_wanted = "dtrun-worker" + version().substr(version().find(' ')) + ", protocol " +
                         std::to_string(kControlProtocol);
  const CommandAnswer answer = answer_of({facts->worker_path, "--version"}, "", 2000ms);
  if (answer.end == CommandAnswer::kAnswered && answer.status == 0)
    facts->worker = answer.text.substr(0, answer.text.find('\n'));
  facts->processor = processor_of(spec);
}

void read_limits(const JobSpec& spec, NodeFacts* facts) {
  // What a process of PyTorch opens itself, and its connections to the others.
  constexpr std::int64_t kOfProcess = 512, kPerPeer = 4;
  const int nodes = std::max(1, spec.nodes.max);
  // As the agent does, whose limit its workers have.
  facts->files_problem = agent::allow_open_files(spec.nproc, nodes).status().message();
  facts->files_wanted = kOfProcess + kPerPeer * spec.nproc * nodes;
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY)
    facts->files = static_cast<std::int64_t>(files.rlim_cur);
  const auto ptrace_scope = number_in("/proc/sys/kernel/yama/ptrace_scope").value_or(0);
  facts->reads_stacks = ptrace_scope < 2 || (ptrace_scope == 2 && geteuid() == 0);
}

void read_cpus(const JobSpec& spec, NodeFacts* facts) {
  facts->workers = spec.nproc;
  facts->cpus = static_cast<int>(allowed_cpus().size());
  if (const auto quota = read_cpu_quota("/")) {
    facts->quota = quota->cpus;
    facts->quota_by = quota->by;
  }
}

void read_trainer(const BuiltinTrainer& trainer, NodeFacts* facts) {
  worker::Sha256 sha;
  sha.update(trainer.config_json);
  facts->config = shortened(sha.hex(), kEnough);
  facts->lanes = trainer.lanes;
  facts->shares_memory = trainer.cuda;
  struct statvfs system {};
  if (trainer.output_dir.empty() || statvfs(nearest_folder(trainer.output_dir).c_str(), &system) != 0) return;
  facts->output_dir = trainer.output_dir;
  facts->free = static_cast<std::int64_t>(system.f_bavail * system.f_frsize);
  const Result<worker::JobConfig> config = worker::parse_config(trainer.config_json, "config", {});
  const auto data = config.ok() ? worker::check_dataset(config.value().data) : config.status();
  const auto bytes = data.ok() ? worker::checkpoint_bytes(config.value(), data.value()) : data.status();
  if (bytes.ok()) facts->checkpoint = static_cast<std::int64_t>(bytes.value());
}

void read_gpus(NodeFacts* facts) {
  if (!agent::driver_may_be_here()) return;
  const GpuReading reading = agent::ask_gpus({own_program().string(), "gpus", "--json"}, 1500ms);
  facts->gpu_problem = reading.failure;
  facts->driver = reading.driver + (reading.cuda > 0 ? ", CUDA " + cuda_version_text(reading.cuda) : "");
  for (const PhysicalGpu& gpu : reading.gpus) {
    if (!gpu.processes.empty() && gpu.memory_used > gpu.memory / 20)
      facts->gpu_use.push_back("GPU " + std::to_string(facts->gpus.size()) + ": " +
                               in_gibibytes(gpu.memory_used) + " are held by others (pid " +
                               std::to_string(gpu.processes.front()) + ")");
    facts->gpus.push_back(gpu.lost ? "" : gpu.name);
  }
}

}  // namespace

CheckedJob plan_job(Options options, const Machine& machine, const Environment& environment, int nodes) {
  const Notice silent = [](const std::string&) {};
  if (const Status status = agent::check_memory_limit(); !status.ok()) return {.refusal = status.message()};
  if (options.program.empty()) options.program = {kItself};
  Result<JobSpec> spec = make_job_spec(options, machine, environment, silent);
  if (!spec.ok()) return {.refusal = spec.status().message()};
  if (nodes > 1) spec.value().nodes = {.min = nodes, .max = nodes};
  Status status = check_files(spec.value(), options.program);
  if (status.ok()) status = check_node(spec.value(), silent);
  return {.spec = std::move(spec).value(), .refusal = status.message()};
}

NodeFacts gather(const CheckedJob& job, const Surroundings& at) {
  JobSpec nothing;
  nothing.program = ExternalProgram{};
  const JobSpec& spec = job.spec ? *job.spec : nothing;
  NodeFacts facts{.refusal = job.refusal, .has_peers = spec.nodes.max > 1, .shm_size = size_of_shm()};
  auto gpus = std::async(std::launch::async, read_gpus, &facts);
  auto network = std::async(std::launch::async, [&] {
    read_names(&facts);
    if (at.endpoint_host.empty()) return;
    read_route(at.endpoint_host, at.endpoint_port, &facts);
    if (at.looks_at_listener) read_listener(at.endpoint_host, at.endpoint_port, spec, &facts);
  });
  if (const auto* trainer = std::get_if<BuiltinTrainer>(&spec.program)) read_trainer(*trainer, &facts);
  read_programs(spec, &facts);
  read_limits(spec, &facts);
  read_cpus(spec, &facts);
  network.get();
  gpus.get();
  return facts;
}

}  // namespace dtrun::cmd
