#include "cmd/check/node_checks.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "cmd/check/core/findings.h"
#include "cmd/check/memory_check.h"
#include "cmd/machine/machine.h"
#include "proto/base/answer.h"
#include "proto/core/exit_codes.h"
#include "worker/checkpoint/config_drift.h"
#include "worker/checkpoint/output_lock.h"
#include "worker/checkpoint/places.h"
#include "worker/checkpoint/trained_model.h"
#include "worker/config/config.h"
#include "worker/data/dataset.h"
#include "worker/memory/need.h"

namespace dtrun::cmd {
namespace {

// The nearest folder that exists must let us write.
Status check_writable(const std::filesystem::path& directory) {
  std::error_code error;
  const std::filesystem::path existing = nearest_folder(directory);
  if (!std::filesystem::is_directory(existing, error))
    return Status(kExitCannotCreate,
                  existing.string() + ": is no directory, cannot make " + directory.string());
  if (access(existing.c_str(), W_OK) == 0) return {};
  return errno_status(kExitCannotCreate, existing.string(), errno)
      .within("cannot write " + directory.string());
}

// In the words of the workers, who would refuse data that does not fit their model one by one. OK for other
// programs than the built-in trainer, and for data that cannot be looked at any more.
Status check_fit(const JobSpec& spec) {
  const auto* trainer = std::get_if<BuiltinTrainer>(&spec.program);
  if (trainer == nullptr) return {};
  const Result<worker::JobConfig> config = worker::parse_config(trainer->config_json, "config", {});
  if (!config.ok()) return {};
  const Result<worker::DatasetFacts> data = worker::check_dataset(config.value().data);
  if (!data.ok()) return {};
  RETURN_IF_ERROR(worker::check_fit(config.value(), data.value()));
  RETURN_IF_ERROR(worker::check_teacher(config.value().train, data.value().spec));
  // A run that resumes does not read it, and of several nodes only that of rank 0 does.
  const bool resumes = config.value().train.resume_from_checkpoint.kind != worker::ResumeFrom::Kind::kNone &&
                       !worker::list_checkpoints(config.value().output_dir).empty();
  return resumes || spec.nodes.max > 1 ? Status() : worker::check_init(config.value());
}

// Another writer of the output directory is in the way, and is reported before workers start.
Status await_output_dir(const BuiltinTrainer* trainer, const Notice& notice) {
  const auto deadline = std::chrono::steady_clock::now() + worker::kLockPatience;
  bool told = false;
  while (const auto writer = worker::current_writer(trainer->output_dir)) {
    if (std::chrono::steady_clock::now() >= deadline) return worker::in_use(trainer->output_dir, *writer);
    if (!std::exchange(told, true))
      notice("another run still writes " + trainer->output_dir + "; waiting " +
             std::to_string(worker::kLockPatience.count()) + " s for its end");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return {};
}

// Checks the output directory of a run. A run on several nodes may have begun already on another one, whose
// directory counts: then the workers find out.
Status check_output_dir(const JobSpec& spec, const Notice& notice) {
  const auto* trainer = std::get_if<BuiltinTrainer>(&spec.program);
  if (trainer == nullptr || trainer->output_dir.empty() || spec.nodes.max > 1) return {};
  RETURN_IF_ERROR(check_writable(trainer->output_dir));
  RETURN_IF_ERROR(await_output_dir(trainer, notice));
  const Result<worker::JobConfig> config = worker::parse_config(trainer->config_json, "config", {});
  return config.ok() ? worker::check_goes_on(config.value()) : Status();
}

Status check_program(const std::string& program) {
  if (program.find('/') == std::string::npos) {
    if (in_path(program)) return {};
    return Status(kExitNoInput, program + ": no such program in PATH");
  }
  if (access(program.c_str(), X_OK) == 0) return {};
  return errno_status(kExitNoInput, program, errno);
}

}  // namespace

Status check_node(const JobSpec& spec, const Notice& notice) {
  if (const auto* trainer = std::get_if<BuiltinTrainer>(&spec.program);
      trainer && access(trainer->worker_binary.c_str(), X_OK) != 0) {
    return errno_status(kExitSoftware, trainer->worker_binary.string(), errno)
        .within("the built-in trainer must lie beside dtrun");
  }
  RETURN_IF_ERROR(check_fit(spec));
  RETURN_IF_ERROR(check_output_dir(spec, notice));
  if (const std::string small = small_shm_notice(spec, size_of_shm()); !small.empty()) notice(small);
  // Once, before any worker takes memory: the available memory is for all of them.
  return check_memory(spec, read_available_memory("/"));
}

std::string processor_of(const JobSpec& spec) {
  constexpr std::chrono::seconds kLimit{60};
  const auto* const trainer = std::get_if<BuiltinTrainer>(&spec.program);
  if (trainer == nullptr || trainer->cuda) return "";
  const Result<worker::JobConfig> config = worker::parse_config(trainer->config_json, "config", {});
  if (!config.ok() || config.value().train.allow_mixed_devices) return "";
  CommandAnswer answer = answer_of({trainer->worker_binary, "fingerprint"}, trainer->config_json, kLimit);
  if (answer.status != 0 || !answer.text.ends_with('\n')) return "";
  answer.text.pop_back();
  return answer.text;
}

// If the program does not answer, the workers find out.
void find_facts_for_others(JobSpec* spec) {
  auto* const trainer = std::get_if<BuiltinTrainer>(&spec->program);
  if (trainer == nullptr) return;
  if (spec->nodes.max > 1) trainer->processor = processor_of(*spec);
  // A GPU that loses its worker leaves its memory to nobody, so that those of one node may be too few, too.
  if (spec->nodes.max > 1 || trainer->cuda) find_least_workers(spec, read_available_memory("/"));
}

void find_writer(JobSpec* spec) {
  auto* const trainer = std::get_if<BuiltinTrainer>(&spec->program);
  if (trainer == nullptr || trainer->output_dir.empty() || spec->nodes.max <= 1) return;
  trainer->output_dir_in_use = worker::current_writer(trainer->output_dir).has_value();
}

Status check_files(const JobSpec& spec, const std::vector<std::string>& program) {
  if (!spec.log_dir.empty())
    if (Status status = check_writable(spec.log_dir); !status.ok()) return status.within("--log_dir");
  if (const auto* trainer = std::get_if<BuiltinTrainer>(&spec.program))
    return trainer->output_dir.empty() ? Status() : check_writable(trainer->output_dir);
  const auto& argv = std::get<ExternalProgram>(spec.program).argv;
  RETURN_IF_ERROR(check_program(argv[0]));
  const bool script =
      argv[0] != program[0] && (program[0].ends_with(".py") || program[0].find('/') != std::string::npos);
  if (!script || access(program[0].c_str(), R_OK) == 0) return {};
  return errno_status(kExitNoInput, program[0], errno);
}

std::filesystem::path nearest_folder(const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::path existing = std::filesystem::absolute(directory, error);
  while (!std::filesystem::exists(existing, error) && existing.has_relative_path())
    existing = existing.parent_path();
  return existing;
}

std::int64_t size_of_shm() {
  struct statvfs system {};
  if (statvfs("/dev/shm", &system) != 0) return -1;
  return static_cast<std::int64_t>(system.f_blocks * system.f_frsize);
}

std::string small_shm_notice(const JobSpec& spec, std::int64_t shm_size) {
  const auto* const trainer = std::get_if<BuiltinTrainer>(&spec.program);
  const auto* const program = std::get_if<ExternalProgram>(&spec.program);
  const bool python = program != nullptr && !program->argv.empty() &&
                      std::filesystem::path(program->argv.front()).filename().string().starts_with("python");
  const bool shares = python || (trainer != nullptr && trainer->cuda);
  if (shm_size < 0 || !shares || std::max(spec.nproc, spec.local_world_size) < 2) return "";
  const Finding found = shared_memory({.shm_size = shm_size});
  return found.grade == Grade::kPassed ? "" : found.text + "; give it more (" + found.remedy + ")";
}

}  // namespace dtrun::cmd
