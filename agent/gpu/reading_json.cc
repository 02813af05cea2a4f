#include "agent/gpu/reading_json.h"

#include "proto/json/fields.h"

namespace dtrun {

DTRUN_JSON(MigInstance, uuid, name, memory, gpu_instance, compute_instance)

DTRUN_JSON(PhysicalGpu, uuid, name, pci, memory, memory_used, numa_node, lost, ecc_errors, processes,
           utilization, temperature, power, throttled, mig, instances)

DTRUN_JSON(GpuReading, driver, cuda, failure, gpus)

namespace agent {

std::string to_json(const GpuReading& reading) { return json_text(Json(reading)); }

std::optional<GpuReading> reading_of(std::string_view text) { return parsed<GpuReading>(text); }

}  // namespace agent
}  // namespace dtrun
