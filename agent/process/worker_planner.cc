#include "agent/process/worker_planner.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <system_error>
#include <utility>

#include "agent/process/spawn.h"
#include "proto/base/ids.h"
#include "proto/core/contract.h"

namespace dtrun::agent {
namespace {

namespace fs = std::filesystem;

WorkerSetting setting_of(const JobSpec& spec, const std::string& tag) {
  const auto* trainer = std::get_if<BuiltinTrainer>(&spec.program);
  return {.run_id = spec.run_id,
          .role = spec.role,
          .max_restarts = spec.max_restarts,
          .omp_num_threads = spec.omp_num_threads,
          .tag = tag,
          .virtual_local_rank = spec.virtual_local_rank,
          .master_address = spec.rendezvous.master_address,
          .gpus_by_address = trainer != nullptr && trainer->cuda,
          .first_local_rank = spec.first_local_rank,
          .local_world_size = spec.local_world_size};
}

}  // namespace

WorkerPlanner::WorkerPlanner(const JobSpec& spec, std::vector<std::string> inherited, const std::string& tag,
                             Disk& logs, Scratch& scratch)
    : spec_(spec),
      trainer_(std::get_if<BuiltinTrainer>(&spec.program)),
      inherited_(std::move(inherited)),
      setting_(setting_of(spec, tag)),
      outputs_(spec, host_name(), logs),
      logs_(logs),
      scratch_(scratch) {}

WorkerPlan WorkerPlanner::plan(Console& console, const Assignment& assignment, int serial, int local_rank,
                               int rank) {
  WorkerPlan plan;
  plan.generation = assignment.generation;
  plan.local_rank = local_rank;
  plan.rank = rank;
  plan.program = trainer_ == nullptr;
  plan_output(console, &plan);
  plan_error_file(&plan);
  if (static_cast<std::size_t>(local_rank) < spec_.worker_cpus.size()) {
    plan.cpus = spec_.worker_cpus[static_cast<std::size_t>(local_rank)];
  }
  plan.tag = worker_tag(setting_.tag, serial);
  const WorkerNumbers numbers{.serial = serial, .local_rank = local_rank};
  plan.environment =
      worker_environment(inherited_, setting_, assignment, numbers, kControlFd, plan.error_file.string());
  plan.argv = trainer_ != nullptr ? std::vector<std::string>{trainer_->worker_binary.string()}
                                  : worker_arguments(std::get<ExternalProgram>(spec_.program).argv,
                                                     spec_.first_local_rank + local_rank);
  plan_hang_files(&plan);
  if (trainer_ != nullptr && trainer_->in_memory_checkpoints) plan_in_memory_checkpoint(console, &plan);
  if (trainer_ != nullptr) plan_operations(&plan);
  // One for all workers. Without it each has its data for itself.
  if (trainer_ != nullptr)
    if (const Result<int> file = data_.of(0); file.ok()) plan.data_fd = file.value();
  if (!scratch_error_.empty() && !std::exchange(scratch_told_, true)) console.notice(scratch_error_);
  return plan;
}

void WorkerPlanner::plan_output(Console& console, WorkerPlan* plan) {
  plan->log_dir = worker_log_dir(spec_.log_dir, spec_.run_id, plan->generation, plan->rank);
  plan->out = outputs_.plan(console, Console::Stream::kOut, plan->rank, plan->local_rank, plan->log_dir);
  plan->err = outputs_.plan(console, Console::Stream::kErr, plan->rank, plan->local_rank, plan->log_dir);
}

// dtrun-worker reports its error over the control socket, so it needs no file in the scratch folder. In a log
// directory the file has its place all the same.
void WorkerPlanner::plan_error_file(WorkerPlan* plan) {
  std::error_code ignored;
  fs::path dir;
  if (!plan->log_dir.empty()) {
    dir = fs::absolute(plan->log_dir, ignored);
  } else if (plan->program) {
    dir = scratch_dir(plan->rank);
  }
  if (dir.empty()) return;
  plan->error_file = dir / "error.json";
  plan->error_disk = plan->log_dir.empty() ? &scratch_.disk() : &logs_;
  plan->error_disk->run([dir, file = plan->error_file] {
    std::error_code unheard;  // opening the log files reports it
    fs::create_directories(dir, unheard);
    fs::remove(file, unheard);
  });
}

// The files by which a program shows what it does: its heartbeats and, should it hang, its stacks. The
// heartbeat file exists before the worker does, so that a program may set its time (os.utime) as well as
// touch it.
void WorkerPlanner::plan_hang_files(WorkerPlan* plan) {
  const std::string name = std::string(kEnvHeartbeatFile) + "=";
  std::erase_if(plan->environment, [&](const std::string& entry) { return entry.starts_with(name); });
  const bool may_be_ended = spec_.heartbeat_timeout.count() > 0 || spec_.stall_timeout.count() > 0;
  if (!plan->program && !may_be_ended) return;
  const fs::path dir = scratch_dir(plan->rank);
  const fs::path stacks_dir = plan->log_dir.empty() ? dir : plan->log_dir;
  if (!stacks_dir.empty()) plan->stacks_file = stacks_dir / "stacks.txt";
  if (!plan->program || dir.empty()) return;
  plan->heartbeat_file = dir / ("heartbeat-" + std::to_string(plan->generation));
  scratch_.disk().run([file = plan->heartbeat_file] { std::ofstream(file).close(); });
  plan->environment.push_back(name + plan->heartbeat_file.string());
}

// The run can do without a copy.
void WorkerPlanner::plan_in_memory_checkpoint(Console& console, WorkerPlan* plan) {
  const Result<int> file = in_memory_checkpoints_.of(plan->local_rank);
  if (file.ok())
    plan->in_memory_checkpoint_fd = file.value();
  else if (!std::exchange(host_memory_told_, true))
    console.notice("workers keep no copies in this host's memory: " + file.status().message());
}

// What an earlier process of this worker left there is cleared. Without the memory a hang is told with fewer
// facts, and nothing can be traced.
void WorkerPlanner::plan_operations(WorkerPlan* plan) {
  constexpr std::size_t kBytes = sizeof(OperationMemory);
  const Result<int> file = operations_.of(plan->local_rank);
  if (!file.ok() || ftruncate(file.value(), kBytes) != 0) return;
  fcntl(file.value(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);  // fails if done before
  if (!clear_memory(file.value(), 0, kBytes).ok()) return;
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.value(), 0);
  if (memory == MAP_FAILED) return;
  plan->operations_fd = file.value();
  plan->operations = {static_cast<OperationMemory*>(memory),
                      [memory](OperationMemory*) { munmap(memory, kBytes); }};
}

// A temporary folder for a worker's files that are no logs, or whose job has no log directory; empty if it
// cannot be made.
fs::path WorkerPlanner::scratch_dir(int rank) {
  if (const Status made = scratch_.make(); !made.ok()) {
    const bool in_logs = !spec_.log_dir.empty();
    scratch_error_ = made.message() + ": the workers have no " + (in_logs ? "" : "error files and ") +
                     "heartbeat files; set TMPDIR to a directory that can be written";
    return {};
  }
  fs::path dir = scratch_.path() / std::to_string(rank);
  const bool done = scratch_.disk().run([dir] {
    std::error_code error;
    fs::create_directories(dir, error);
  });
  return done ? dir : fs::path();
}

}  // namespace dtrun::agent
