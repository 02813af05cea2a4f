#include "agent/gpu/reading_json.h"

#include "proto/json/json.h"

namespace dtrun::agent {
namespace {

template <typename T>
Json json_of(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

template <typename T>
void read(const Json& json, std::optional<T>* value) {
  if (!json.is_null()) *value = json.get<T>();
}

Json to_object(const MigInstance& instance) {
  return {{"uuid", instance.uuid},
          {"name", instance.name},
          {"memory", instance.memory},
          {"gpu_instance", instance.gpu_instance},
          {"compute_instance", instance.compute_instance}};
}

Json to_object(const GpuHealth& health) {
  return {{"remap_pending", health.remap_pending},
          {"remap_failed", health.remap_failed},
          {"throttled", health.throttled},
          {"pcie_width", health.pcie_width},
          {"pcie_width_most", health.pcie_width_most},
          {"links", health.links},
          {"links_down", health.links_down}};
}

Json to_object(const PhysicalGpu& gpu) {
  Json json{{"uuid", gpu.uuid},
            {"name", gpu.name},
            {"pci", gpu.pci},
            {"memory", gpu.memory},
            {"memory_used", gpu.memory_used},
            {"numa_node", gpu.numa_node},
            {"lost", gpu.lost},
            {"ecc_errors", json_of(gpu.ecc_errors)},
            {"processes", gpu.processes},
            {"utilization", json_of(gpu.utilization)},
            {"temperature", json_of(gpu.temperature)},
            {"power", json_of(gpu.power)},
            {"mig", gpu.mig},
            {"health", to_object(gpu.health)}};
  for (const MigInstance& instance : gpu.instances) json["instances"].push_back(to_object(instance));
  return json;
}

MigInstance instance_of(const Json& json) {
  return {.uuid = json.at("uuid"),
          .name = json.at("name"),
          .memory = json.at("memory"),
          .gpu_instance = json.at("gpu_instance"),
          .compute_instance = json.at("compute_instance")};
}

GpuHealth health_of(const Json& json) {
  return {.remap_pending = json.at("remap_pending"),
          .remap_failed = json.at("remap_failed"),
          .throttled = json.at("throttled"),
          .pcie_width = json.at("pcie_width"),
          .pcie_width_most = json.at("pcie_width_most"),
          .links = json.at("links"),
          .links_down = json.at("links_down")};
}

PhysicalGpu gpu_of(const Json& json) {
  PhysicalGpu gpu{.uuid = json.at("uuid"),
                  .name = json.at("name"),
                  .pci = json.at("pci"),
                  .memory = json.at("memory"),
                  .numa_node = json.at("numa_node"),
                  .mig = json.at("mig"),
                  .lost = json.at("lost"),
                  .memory_used = json.at("memory_used"),
                  .processes = json.at("processes"),
                  .health = health_of(json.at("health"))};
  read(json.at("ecc_errors"), &gpu.ecc_errors);
  read(json.at("utilization"), &gpu.utilization);
  read(json.at("temperature"), &gpu.temperature);
  read(json.at("power"), &gpu.power);
  if (json.contains("instances"))
    for (const Json& instance : json.at("instances")) gpu.instances.push_back(instance_of(instance));
  return gpu;
}

}  // namespace

std::string to_json(const GpuReading& reading) {
  Json json{{"driver", reading.driver}, {"cuda", reading.cuda}, {"failure", reading.failure}};
  json["gpus"] = Json::array();
  for (const PhysicalGpu& gpu : reading.gpus) json["gpus"].push_back(to_object(gpu));
  return json_text(json);
}

std::optional<GpuReading> reading_of(std::string_view text) {
  try {
    const Json json = parse_json(text);
    GpuReading reading{
        .gpus = {}, .driver = json.at("driver"), .cuda = json.at("cuda"), .failure = json.at("failure")};
    for (const Json& gpu : json.at("gpus")) reading.gpus.push_back(gpu_of(gpu));
    return reading;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace dtrun::agent
