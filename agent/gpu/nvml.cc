#include "agent/gpu/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>
#include <vector>

#include "agent/gpu/proc_gpus.h"
#include "proto/core/text.h"

namespace dtrun::agent {

// The used part of nvml.h, which is missing where dtrun is built without the toolkit.
namespace nvml {

using Device = struct DeviceOpaque*;
using Code = int;
constexpr Code kSuccess = 0, kDriverNotLoaded = 9, kGpuIsLost = 15, kInsufficientSize = 7;
constexpr int kUncorrected = 1, kSinceDriverLoad = 0;  // NVML_MEMORY_ERROR_TYPE_…, NVML_VOLATILE_ECC
constexpr unsigned kMigEnabled = 1;
constexpr int kOfTheChip = 0;  // NVML_TEMPERATURE_GPU
// nvmlClocksThrottleReason…, without those that are a user's wish or an idle GPU's.
constexpr std::pair<unsigned long long, const char*> kThrottleReasons[] = {
    {0x8, "hardware slowdown"}, {0x20, "heat"}, {0x40, "heat, by hardware"}, {0x80, "power brake"}};

struct PciInfo {
  char legacy_address[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char address[32];
};
struct MemoryInfo {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned gpu, memory;  // per cent
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};

}  // namespace nvml

namespace {

using namespace nvml;

constexpr char kLibrary[] = "libnvidia-ml.so.1";

void* open_library(const char* path) {
  for (const std::string& folder : split(path ? path : "", ':')) {
    if (folder.empty()) continue;
    if (void* library = dlopen((folder + "/" + kLibrary).c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
}

// "00000000:5E:00.0" as the kernel writes it: "0000:5e:00.0".
std::string kernel_address(const PciInfo& pci) {
  char text[32];
  std::snprintf(text, sizeof text, "%04x:%02x:%02x.0", pci.domain, pci.bus, pci.device);
  return text;
}

// A function of the library, of any type; null where it has none.
struct Symbol {
  void* address;
  template <typename Function>
  operator Function*() const {  // NOLINT: implicit on purpose
    return reinterpret_cast<Function*>(address);
  }
};

}  // namespace

struct Nvml::Table {
  explicit Table(void* opened) : library(opened) {}

  void* const library;
  Code (*init)() = find("nvmlInit_v2");
  Code (*shutdown)() = find("nvmlShutdown");
  const char* (*error_string)(Code) = find("nvmlErrorString");
  Code (*count)(unsigned*) = find("nvmlDeviceGetCount_v2");
  Code (*handle)(unsigned, Device*) = find("nvmlDeviceGetHandleByIndex_v2");
  // Those that older drivers, or some GPUs, do not have may be null.
  Code (*driver_version)(char*, unsigned) = find("nvmlSystemGetDriverVersion");
  Code (*cuda_version)(int*) = find("nvmlSystemGetCudaDriverVersion_v2");
  Code (*uuid)(Device, char*, unsigned) = find("nvmlDeviceGetUUID");
  Code (*name)(Device, char*, unsigned) = find("nvmlDeviceGetName");
  Code (*pci)(Device, PciInfo*) = find("nvmlDeviceGetPciInfo_v3");
  Code (*memory)(Device, MemoryInfo*) = find("nvmlDeviceGetMemoryInfo");
  Code (*processes)(Device, unsigned*, ProcessInfo*) = find("nvmlDeviceGetComputeRunningProcesses_v3",
                                                            "nvmlDeviceGetComputeRunningProcesses_v2");
  Code (*ecc_errors)(Device, int, int, unsigned long long*) = find("nvmlDeviceGetTotalEccErrors");
  Code (*throttle_reasons)(Device, unsigned long long*) = find("nvmlDeviceGetCurrentClocksThrottleReasons");
  Code (*utilization)(Device, Utilization*) = find("nvmlDeviceGetUtilizationRates");
  Code (*temperature)(Device, int, unsigned*) = find("nvmlDeviceGetTemperature");
  Code (*power)(Device, unsigned*) = find("nvmlDeviceGetPowerUsage");
  Code (*mig_mode)(Device, unsigned*, unsigned*) = find("nvmlDeviceGetMigMode");
  Code (*mig_count)(Device, unsigned*) = find("nvmlDeviceGetMaxMigDeviceCount");
  Code (*mig_handle)(Device, unsigned, Device*) = find("nvmlDeviceGetMigDeviceHandleByIndex");
  Code (*gpu_instance)(Device, unsigned*) = find("nvmlDeviceGetGpuInstanceId");
  Code (*compute_instance)(Device, unsigned*) = find("nvmlDeviceGetComputeInstanceId");

  // By the name of newer drivers, or else of older ones.
  Symbol find(const char* name, const char* older = nullptr) const {
    void* const address = dlsym(library, name);
    return {address == nullptr && older != nullptr ? dlsym(library, older) : address};
  }
  bool complete() const { return init && shutdown && error_string && count && handle; }

  // The text from `get(device, text, size)`; empty if it fails.
  std::string text_of(Code (*get)(Device, char*, unsigned), Device device) const {
    std::array<char, 128> text{};
    const bool told = get != nullptr && get(device, text.data(), text.size() - 1) == kSuccess;
    return told ? text.data() : "";
  }

  std::vector<int> processes_on(Device device) const {
    std::vector<ProcessInfo> list(64);
    Code code = kInsufficientSize;
    // More may come between two calls.
    for (int attempt = 0; processes != nullptr && code == kInsufficientSize && attempt < 4; ++attempt) {
      auto number = static_cast<unsigned>(list.size());
      code = processes(device, &number, list.data());
      if (code == kInsufficientSize) number = std::min(2 * number, 1u << 16);
      list.resize(code == kSuccess || code == kInsufficientSize ? number : 0);
    }
    std::vector<int> pids;
    if (code != kSuccess) return pids;
    for (const ProcessInfo& process : list) pids.push_back(static_cast<int>(process.pid));
    return pids;
  }

  std::vector<std::string> slowed_by(Device device) const {
    unsigned long long reasons = 0;
    std::vector<std::string> names;
    if (throttle_reasons == nullptr || throttle_reasons(device, &reasons) != kSuccess) return names;
    for (const auto& [bit, name] : kThrottleReasons)
      if (reasons & bit) names.emplace_back(name);
    return names;
  }

  void read_use(Device device, PhysicalGpu* gpu) const {
    Utilization busy{};
    unsigned degrees = 0, milliwatts = 0;
    if (utilization && utilization(device, &busy) == kSuccess) gpu->utilization = busy.gpu / 100.0;
    if (temperature && temperature(device, kOfTheChip, &degrees) == kSuccess) gpu->temperature = degrees;
    if (power && power(device, &milliwatts) == kSuccess) gpu->power = milliwatts / 1000.0;
  }

  std::vector<MigInstance> instances_of(Device device) const {
    std::vector<MigInstance> instances;
    unsigned places = 0;
    if (!mig_count || !mig_handle || mig_count(device, &places) != kSuccess) return instances;
    for (unsigned i = 0; i < places; ++i) {
      Device instance{};
      if (mig_handle(device, i, &instance) != kSuccess) continue;
      MigInstance found{.uuid = text_of(uuid, instance), .name = text_of(name, instance)};
      MemoryInfo bytes{};
      if (memory && memory(instance, &bytes) == kSuccess) found.memory = bytes.total;
      unsigned id = 0;
      if (gpu_instance && gpu_instance(instance, &id) == kSuccess) found.gpu_instance = static_cast<int>(id);
      if (compute_instance && compute_instance(instance, &id) == kSuccess)
        found.compute_instance = static_cast<int>(id);
      instances.push_back(std::move(found));
    }
    return instances;
  }
};

std::unique_ptr<Nvml> Nvml::load(const char* path, std::string* why) {
  void* const library = open_library(path);
  if (library == nullptr) {
    *why = kMissing;
    return nullptr;
  }
  auto table = std::make_unique<Table>(library);
  Code code = kSuccess;
  if (!table->complete())
    *why = std::string("the NVIDIA driver's ") + kLibrary + " lacks what it should have";
  else if ((code = table->init()) != kSuccess)
    *why = code == kDriverNotLoaded ? "the NVIDIA driver is not loaded"
                                    : std::string("the NVIDIA driver: ") + table->error_string(code);
  if (why->empty()) return std::unique_ptr<Nvml>(new Nvml(std::move(table)));
  dlclose(library);
  return nullptr;
}

Nvml::Nvml(std::unique_ptr<Table> table) : table_(std::move(table)) {}

Nvml::~Nvml() {
  table_->shutdown();
  dlclose(table_->library);
}

GpuReading Nvml::read() const {
  GpuReading reading;
  std::array<char, 96> driver{};
  if (table_->driver_version && table_->driver_version(driver.data(), driver.size() - 1) == kSuccess)
    reading.driver = driver.data();
  int version = 0;
  if (table_->cuda_version && table_->cuda_version(&version) == kSuccess) reading.cuda = version;
  unsigned count = 0;
  if (const Code code = table_->count(&count); code != kSuccess)
    reading.failure = std::string("the NVIDIA driver: ") + table_->error_string(code);
  for (unsigned i = 0; i < count; ++i) reading.gpus.push_back(read_gpu(i));
  return reading;
}

PhysicalGpu Nvml::read_gpu(unsigned index) const {
  PhysicalGpu gpu;
  Device device{};
  if (const Code code = table_->handle(index, &device); code != kSuccess) {
    gpu.lost = code == kGpuIsLost;
    return gpu;
  }
  gpu.uuid = table_->text_of(table_->uuid, device);
  gpu.name = table_->text_of(table_->name, device);
  PciInfo pci{};
  if (table_->pci && table_->pci(device, &pci) == kSuccess) {
    gpu.pci = kernel_address(pci);
    gpu.numa_node = numa_node_of("/", gpu.pci);
  }
  MemoryInfo memory{};
  const Code answer = table_->memory ? table_->memory(device, &memory) : kSuccess;
  gpu.memory = memory.total;
  gpu.memory_used = memory.used;
  gpu.lost = answer == kGpuIsLost;
  unsigned long long errors = 0;
  if (table_->ecc_errors && table_->ecc_errors(device, kUncorrected, kSinceDriverLoad, &errors) == kSuccess)
    gpu.ecc_errors = errors;
  gpu.processes = table_->processes_on(device);
  gpu.throttled = table_->slowed_by(device);
  table_->read_use(device, &gpu);
  unsigned mode = 0, pending = 0;
  gpu.mig = table_->mig_mode && table_->mig_mode(device, &mode, &pending) == kSuccess && mode == kMigEnabled;
  if (gpu.mig) gpu.instances = table_->instances_of(device);
  return gpu;
}

}  // namespace dtrun::agent
