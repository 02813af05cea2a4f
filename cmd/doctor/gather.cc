#include "cmd/doctor/gather.h"

#include <sys/utsname.h>

#include <chrono>
#include <filesystem>
#include <future>

#include "cmd/doctor/node_facts.h"
#include "cmd/launch/build.h"
#include "cmd/manual/manual.h"
#include "cmd/plan/make_job_spec.h"
#include "cmd/plan/node_checks.h"
#include "proto/base/answer.h"
#include "proto/core/contract.h"
#include "worker/base/sha256.h"

namespace dtrun::doctor {
namespace {

using namespace std::chrono_literals;

constexpr auto kForWorker = 2000ms;

std::filesystem::path worker_beside() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "dtrun-worker";
}

// Enough of it to tell configs apart.
std::string digest_of(const std::string& config) {
  constexpr std::size_t kEnough = 12;
  worker::Sha256 sha;
  sha.update(config);
  return sha.hex().substr(0, kEnough);
}

ProgramFacts read_programs(const Job& job) {
  ProgramFacts program{.version = cmd::version(), .build = cmd::own_build(), .plan_problem = job.refusal};
  program.worker_path = worker_beside();
  const std::string number = program.version.substr(program.version.find(' '));
  program.worker_wanted = "dtrun-worker" + number + ", protocol " + std::to_string(kControlProtocol);
  CommandAnswer answer = answer_of({program.worker_path, "--version"}, "", kForWorker);
  if (answer.end == CommandAnswer::kAnswered && answer.status == 0)
    program.worker = answer.text.substr(0, answer.text.find('\n'));
  utsname system{};
  if (uname(&system) == 0) program.kernel = system.release;
  if (const auto* trainer = job.spec ? std::get_if<BuiltinTrainer>(&job.spec->program) : nullptr)
    program.config = digest_of(trainer->config_json);
  return program;
}

}  // namespace

Job plan_job(cmd::Options options, const cmd::Machine& machine, const cmd::Environment& environment) {
  if (options.program.empty()) options.program = {"true"};
  Result<JobSpec> spec = cmd::make_job_spec(options, machine, environment, [](const std::string&) {});
  if (!spec.ok()) return {.spec = {}, .refusal = spec.status().message()};
  return {.spec = std::move(spec).value(), .refusal = {}};
}

NodeFacts gather(const Job& job, const Surroundings& surroundings) {
  JobSpec nothing;
  nothing.program = ExternalProgram{};
  const JobSpec& spec = job.spec ? *job.spec : nothing;
  const CpuSample cpu;
  NodeFacts facts;
  auto disk = std::async(std::launch::async, read_disks, std::cref(spec));
  auto devices = std::async(std::launch::async, read_devices, std::cref(spec));
  auto network = std::async(std::launch::async, [&] {
    facts.name = read_names();
    facts.name.has_peers = spec.nodes.max > 1;
    if (surroundings.endpoint_host.empty()) return;
    facts.route = read_route(surroundings.endpoint_host, surroundings.endpoint_port);
    if (surroundings.looks_at_listener)
      read_listener(&facts.name, surroundings.endpoint_host, surroundings.endpoint_port, spec);
  });
  facts.program = read_programs(job);
  facts.limits = read_limits(spec);
  facts.memory = read_memory(spec, job.spec && !std::holds_alternative<ExternalProgram>(spec.program));
  network.get();
  facts.disk = disk.get();
  facts.devices = devices.get();
  facts.cpu = cpu.read(spec);
  facts.cpu.fingerprint = cmd::processor_of(spec);
  return facts;
}

}  // namespace dtrun::doctor
