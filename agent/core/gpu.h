// The GPUs of a machine in its driver's view, and those of them that CUDA shows a program. Pure: the driver's
// answer (agent/gpu/) and CUDA_VISIBLE_DEVICES are arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun {

// A part of a GPU in MIG mode.
struct MigInstance {
  std::string uuid;  // "MIG-…"
  std::string name;
  std::uint64_t memory = 0;  // bytes
  int gpu_instance = 0, compute_instance = 0;
};

// A GPU as it is in the machine, and how it was when it was looked at.
struct PhysicalGpu {
  std::string uuid = {};     // "GPU-…"; empty: not known
  std::string name = {};     // "NVIDIA H200"
  std::string pci = {};      // "0000:5e:00.0"
  std::uint64_t memory = 0;  // bytes; 0: not known
  int numa_node = -1;        // -1: not known
  bool mig = false;          // only its instances can be used
  std::vector<MigInstance> instances = {};
  bool lost = false;                             // it does not answer any more
  std::optional<std::uint64_t> ecc_errors = {};  // that could not be corrected, since the driver was loaded
  std::uint64_t memory_used = 0;                 // bytes
  std::vector<int> processes = {};               // that compute on it, by process id
  std::optional<double> utilization = {};        // 0..1: share of the time in which any kernel ran
  std::optional<double> temperature = {};        // degrees Celsius
  std::optional<double> power = {};              // watts
  std::vector<std::string> throttled = {};       // what slows it down: "heat"
};

struct GpuReading {
  std::vector<PhysicalGpu> gpus = {};  // in the order of their PCI addresses, which is nvidia-smi's
  std::string driver = {};             // "580.65.06"; empty: not known
  int cuda = 0;              // the newest version that the driver can run, 13000 for 13.0; 0: not known
  std::string failure = {};  // why no GPU could be seen: "no NVIDIA driver"
};

// A device that CUDA shows a program: a GPU, or an instance of one.
struct Gpu {
  int index = 0;   // as CUDA counts, where CUDA_DEVICE_ORDER is PCI_BUS_ID
  int number = 0;  // as nvidia-smi counts
  std::string uuid = {}, name = {}, pci = {};
  std::uint64_t memory = 0;  // bytes; 0: not known
  int numa_node = -1;
  bool mig = false;

  bool operator==(const Gpu&) const = default;
};

// The GPUs that CUDA shows under this value of CUDA_VISIBLE_DEVICES; null: it is not set. As the driver reads
// it: numbers, or UUIDs and beginnings of them, in the order of the list. The first entry that names no GPU
// ends the list, a GPU named twice empties it. If there are instances, only the first is shown, and no GPU
// beside it.
std::vector<Gpu> visible_gpus(const std::vector<PhysicalGpu>& gpus, const char* visible);

// The devices for a program under this value, and if there are none, why.
struct GpuSight {
  std::vector<Gpu> gpus = {};
  std::string why_none = {};
  std::string driver = {};
  int cuda = 0;
};
GpuSight sight_of(const GpuReading& reading, const char* visible);

// "0-7 (NVIDIA H200, 140 GiB each)"; devices of several kinds one after the other. Empty for none.
std::string gpus_text(const std::vector<Gpu>& gpus);

// "8 GPUs (NVIDIA H200)"
std::string gpu_count_text(const std::vector<Gpu>& gpus);

// "13.0" of 13000
std::string cuda_version_text(int version);

}  // namespace dtrun
