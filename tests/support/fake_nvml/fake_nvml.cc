// NVIDIA's management library for machines without a GPU. Its answers are in the JSON file that
// DTRUN_FAKE_GPUS names, which is read again at each count of the GPUs, so a test may change it:
//   {"driver": "580.65.06", "cuda": 13000, "init": 0, "hang": false,
//    "gpus": [{"uuid": "GPU-…", "name": "…", "bus": 94, "memory": 1, "used": 0, "ecc": 0, "lost": false,
//              "processes": [1234], "throttle": 32,
//              "busy": 87, "celsius": 61, "milliwatts": 412500,
//              "instances": [{"uuid": "MIG-…", "name": "…", "memory": 1, "gi": 7, "ci": 0}]}]}
// Each count adds a byte to the file of that name with ".looks". All but uuid and name may be left out; a GPU
// with instances is in MIG mode. "hang": it never starts.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace {

using Json = nlohmann::json;

constexpr int kSuccess = 0, kInvalid = 2, kNotSupported = 3, kNotFound = 6, kTooSmall = 7, kLost = 15;

Json told = Json::object();

// As nvml.h has them.
struct PciInfo {
  char legacy_address[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char address[32];
};
struct MemoryInfo {
  unsigned long long total, free, used;
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};

void look() {
  const char* path = std::getenv("DTRUN_FAKE_GPUS");
  std::ifstream file(path ? path : "");
  Json fresh = Json::parse(file, nullptr, false);
  if (!fresh.is_discarded()) told = std::move(fresh);  // else it is just being written
}

int write_text(const std::string& text, char* out, unsigned size) {
  if (text.size() + 1 > size) return kTooSmall;
  std::copy(text.begin(), text.end(), out);
  out[text.size()] = '\0';
  return kSuccess;
}

bool lost(const Json* gpu) { return gpu->value("lost", false); }

}  // namespace

extern "C" {

int nvmlInit_v2() {
  look();
  while (told.value("hang", false)) pause();
  return told.value("init", 0);
}
int nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(int code) {
  return code == 18 ? "Driver/library version mismatch" : "Unknown Error";
}
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  return write_text(told.value("driver", "580.65.06"), text, size);
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = told.value("cuda", 13000);
  return kSuccess;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  look();
  if (const char* path = std::getenv("DTRUN_FAKE_GPUS"))
    std::ofstream(path + std::string(".looks"), std::ios::app) << '.';
  *count = told.contains("gpus") ? static_cast<unsigned>(told["gpus"].size()) : 0;
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Json** device) {
  if (index >= told["gpus"].size()) return kInvalid;
  *device = &told["gpus"][index];
  return (*device)->value("unreachable", false) ? kLost : kSuccess;
}
int nvmlDeviceGetUUID(Json* gpu, char* text, unsigned size) { return write_text((*gpu)["uuid"], text, size); }
int nvmlDeviceGetName(Json* gpu, char* text, unsigned size) { return write_text((*gpu)["name"], text, size); }
int nvmlDeviceGetPciInfo_v3(Json* gpu, PciInfo* info) {
  *info = {};
  info->bus = gpu->value("bus", 1u);
  std::snprintf(info->address, sizeof info->address, "00000000:%02X:00.0", info->bus);
  return kSuccess;
}
int nvmlDeviceGetMemoryInfo(Json* gpu, MemoryInfo* info) {
  if (lost(gpu)) return kLost;
  info->total = gpu->value("memory", 150754820096ull);
  info->used = gpu->value("used", 0ull);
  info->free = info->total - info->used;
  return kSuccess;
}
int nvmlDeviceGetComputeRunningProcesses_v3(Json* gpu, unsigned* count, ProcessInfo* list) {
  const Json pids = gpu->value("processes", Json::array());
  const auto found = static_cast<unsigned>(pids.size());
  const bool room = found <= *count;
  *count = found;
  if (!room) return kTooSmall;
  for (unsigned i = 0; i < found; ++i) list[i] = {pids[i].get<unsigned>(), 1, 0, 0};
  return kSuccess;
}
int nvmlDeviceGetTotalEccErrors(Json* gpu, int kind, int counter, unsigned long long* errors) {
  if (kind != 1 || counter != 0 || !gpu->contains("ecc")) return kNotSupported;
  *errors = (*gpu)["ecc"];
  return kSuccess;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(Json* gpu, unsigned long long* reasons) {
  *reasons = gpu->value("throttle", 0ull);
  return kSuccess;
}
int nvmlDeviceGetUtilizationRates(Json* gpu, unsigned* rates) {
  if (!gpu->contains("busy")) return kNotSupported;
  rates[0] = (*gpu)["busy"];
  rates[1] = 0;
  return kSuccess;
}
int nvmlDeviceGetTemperature(Json* gpu, int sensor, unsigned* degrees) {
  if (sensor != 0 || !gpu->contains("celsius")) return kNotSupported;
  *degrees = (*gpu)["celsius"];
  return kSuccess;
}
int nvmlDeviceGetPowerUsage(Json* gpu, unsigned* milliwatts) {
  if (!gpu->contains("milliwatts")) return kNotSupported;
  *milliwatts = (*gpu)["milliwatts"];
  return kSuccess;
}
int nvmlDeviceGetMigMode(Json* gpu, unsigned* current, unsigned* pending) {
  *current = *pending = gpu->contains("instances") ? 1 : 0;
  return kSuccess;
}
int nvmlDeviceGetMaxMigDeviceCount(Json*, unsigned* count) {
  *count = 7;
  return kSuccess;
}
int nvmlDeviceGetMigDeviceHandleByIndex(Json* gpu, unsigned index, Json** instance) {
  if (index >= (*gpu)["instances"].size()) return kNotFound;
  *instance = &(*gpu)["instances"][index];
  return kSuccess;
}
int nvmlDeviceGetGpuInstanceId(Json* instance, unsigned* id) {
  *id = instance->value("gi", 0u);
  return kSuccess;
}
int nvmlDeviceGetComputeInstanceId(Json* instance, unsigned* id) {
  *id = instance->value("ci", 0u);
  return kSuccess;
}

}  // extern "C"
