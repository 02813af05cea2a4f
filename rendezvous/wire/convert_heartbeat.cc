// The numbers of workers in a heartbeat.
#include "proto/wire/fields.h"
#include "proto/wire/training.h"
#include "rendezvous/wire/convert.h"

namespace dtrun::rendezvous {

DTRUN_WIRE(WorkerUsage, v1::WorkerUsage, cpu, cpu_wait, major_faults, read_bytes, written_bytes,
           resident_bytes, output_age, last_line)

DTRUN_WIRE(GpuUse, v1::GpuUse, number, utilization, memory_used, memory_total, temperature, power, throttled)

DTRUN_FIELDS(Quiet, v1::Quiet, why, seconds, overdue, where, activity, peer, operation, step, bucket)

// An operation of another build is one without a name.
Quiet from_wire(const v1::Quiet& wire) {
  Quiet quiet;
  read_fields(wire, &quiet);
  if (quiet.operation >= Operation::Kind::kCount) quiet.operation = Operation::Kind::kMessage;
  return quiet;
}

void to_wire(const Quiet& quiet, v1::Quiet* wire) { write_fields(quiet, wire); }

DTRUN_WIRE(WorkerReport, v1::WorkerReport, rank, step, times, usage, quiet, gpu)

DTRUN_WIRE(Heartbeat, v1::Heartbeat, pids, progress, outlives, workers)

}  // namespace dtrun::rendezvous
