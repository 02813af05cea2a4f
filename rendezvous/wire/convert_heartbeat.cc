// The numbers of workers in a heartbeat.
#include "proto/wire/training.h"
#include "rendezvous/wire/convert.h"

namespace dtrun::rendezvous {

Neighbour from_wire(const v1::Neighbour& wire) {
  return {.pid = wire.pid(), .name = wire.name(), .cpus = wire.cpus()};
}

void to_wire(const Neighbour& neighbour, v1::Neighbour* wire) {
  wire->set_pid(neighbour.pid);
  wire->set_name(neighbour.name);
  wire->set_cpus(neighbour.cpus);
}

WorkerUsage from_wire(const v1::WorkerUsage& wire) {
  return {.cpu = wire.cpu(),
          .cpu_wait = wire.cpu_wait(),
          .throttled = wire.throttled(),
          .major_faults = wire.major_faults(),
          .read_bytes = wire.read_bytes(),
          .written_bytes = wire.written_bytes(),
          .resident_bytes = wire.resident_bytes(),
          .output_age = wire.output_age(),
          .stopped = wire.stopped(),
          .neighbour = wire.has_neighbour() ? std::optional(from_wire(wire.neighbour())) : std::nullopt,
          .last_line = wire.last_line()};
}

void to_wire(const WorkerUsage& usage, v1::WorkerUsage* wire) {
  wire->set_cpu(usage.cpu);
  wire->set_cpu_wait(usage.cpu_wait);
  wire->set_throttled(usage.throttled);
  wire->set_major_faults(usage.major_faults);
  wire->set_read_bytes(usage.read_bytes);
  wire->set_written_bytes(usage.written_bytes);
  wire->set_resident_bytes(usage.resident_bytes);
  wire->set_output_age(usage.output_age);
  wire->set_stopped(usage.stopped);
  wire->set_last_line(usage.last_line);
  if (usage.neighbour) to_wire(*usage.neighbour, wire->mutable_neighbour());
}

GpuUse from_wire(const v1::GpuUse& wire) {
  GpuUse use{.number = wire.number()};
  if (wire.has_utilization()) use.utilization = wire.utilization();
  if (wire.has_memory_used()) use.memory_used = wire.memory_used();
  if (wire.has_memory_total()) use.memory_total = wire.memory_total();
  if (wire.has_temperature()) use.temperature = wire.temperature();
  if (wire.has_power()) use.power = wire.power();
  use.throttled.assign(wire.throttled().begin(), wire.throttled().end());
  return use;
}

void to_wire(const GpuUse& use, v1::GpuUse* wire) {
  wire->set_number(use.number);
  if (use.utilization) wire->set_utilization(*use.utilization);
  if (use.memory_used) wire->set_memory_used(*use.memory_used);
  if (use.memory_total) wire->set_memory_total(*use.memory_total);
  if (use.temperature) wire->set_temperature(*use.temperature);
  if (use.power) wire->set_power(*use.power);
  for (const std::string& reason : use.throttled) wire->add_throttled(reason);
}

// An operation of another build is one without a name.
Quiet from_wire(const v1::Quiet& wire) {
  const auto operation = static_cast<Operation::Kind>(wire.operation());
  return {.why = static_cast<Quiet::Why>(wire.why()),
          .seconds = wire.seconds(),
          .overdue = wire.overdue(),
          .where = wire.where(),
          .activity = static_cast<Activity>(wire.activity()),
          .peer = wire.peer(),
          .operation = operation < Operation::Kind::kCount ? operation : Operation::Kind::kMessage,
          .step = wire.step(),
          .bucket = wire.bucket()};
}

void to_wire(const Quiet& quiet, v1::Quiet* wire) {
  wire->set_why(static_cast<v1::Quiet::Why>(quiet.why));
  wire->set_seconds(quiet.seconds);
  wire->set_overdue(quiet.overdue);
  wire->set_where(quiet.where);
  wire->set_activity(static_cast<v1::Activity>(quiet.activity));
  wire->set_peer(quiet.peer);
  wire->set_operation(static_cast<v1::Quiet::Operation>(quiet.operation));
  wire->set_step(quiet.step);
  wire->set_bucket(quiet.bucket);
}

WorkerReport from_wire(const v1::WorkerReport& wire) {
  WorkerReport report{.rank = wire.rank(), .step = wire.step()};
  if (wire.has_quiet()) report.quiet = from_wire(wire.quiet());
  if (wire.has_gpu()) report.gpu = from_wire(wire.gpu());
  if (wire.has_times()) report.times = from_wire(wire.times());
  if (wire.has_usage()) report.usage = from_wire(wire.usage());
  return report;
}

void to_wire(const WorkerReport& report, v1::WorkerReport* wire) {
  wire->set_rank(report.rank);
  wire->set_step(report.step);
  if (report.times) to_wire(*report.times, wire->mutable_times());
  if (report.usage) to_wire(*report.usage, wire->mutable_usage());
  if (report.quiet) to_wire(*report.quiet, wire->mutable_quiet());
  if (report.gpu) to_wire(*report.gpu, wire->mutable_gpu());
}

Heartbeat from_wire(const v1::Heartbeat& wire) {
  Heartbeat heartbeat{
      .pids = {wire.pids().begin(), wire.pids().end()}, .outlives = wire.outlives(), .spares = wire.spares()};
  if (wire.has_progress()) heartbeat.progress = from_wire(wire.progress());
  for (const v1::WorkerReport& report : wire.workers()) heartbeat.workers.push_back(from_wire(report));
  return heartbeat;
}

void to_wire(const Heartbeat& heartbeat, v1::Heartbeat* wire) {
  for (int pid : heartbeat.pids) wire->add_pids(pid);
  if (heartbeat.progress) to_wire(*heartbeat.progress, wire->mutable_progress());
  wire->set_outlives(heartbeat.outlives);
  wire->set_spares(heartbeat.spares);
  for (const WorkerReport& report : heartbeat.workers) to_wire(report, wire->add_workers());
}

}  // namespace dtrun::rendezvous
