#include "agent/core/gpu.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "proto/core/text.h"
#include "rendezvous/core/rank_set.h"

namespace dtrun {
namespace {

constexpr int kNone = -1, kSeveral = -2;

// With those that are empty, also the last.
std::vector<std::string> entries_of(std::string_view list) { return split(std::string(list) + ",", ','); }

// As strtol reads it, like the driver: "1gpu" is 1. Nothing, or a negative number, is no GPU.
int number_of(const std::string& entry) {
  char* end = nullptr;
  const long value = std::strtol(entry.c_str(), &end, 10);
  return end == entry.c_str() || value < 0 || value > 1'000'000 ? kNone : static_cast<int>(value);
}

bool same_start(std::string_view text, std::string_view beginning) {
  const auto equal = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  return beginning.size() <= text.size() &&
         std::equal(beginning.begin(), beginning.end(), text.begin(), equal);
}

Gpu whole(const std::vector<PhysicalGpu>& gpus, int number) {
  const PhysicalGpu& gpu = gpus[static_cast<std::size_t>(number)];
  return {.index = 0,
          .number = number,
          .uuid = gpu.uuid,
          .name = gpu.name,
          .pci = gpu.pci,
          .memory = gpu.memory,
          .numa_node = gpu.numa_node,
          .mig = false};
}

Gpu part(const std::vector<PhysicalGpu>& gpus, int number, const MigInstance& instance) {
  Gpu gpu = whole(gpus, number);
  gpu.uuid = instance.uuid;
  gpu.memory = instance.memory;
  gpu.mig = true;
  if (!instance.name.empty()) gpu.name = instance.name;
  return gpu;
}

// The GPU that an entry "GPU-…" names.
int gpu_with(const std::vector<PhysicalGpu>& gpus, std::string_view entry) {
  int found = kNone;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    if (gpus[i].uuid.empty() || !same_start(gpus[i].uuid, entry)) continue;
    if (found != kNone) return kSeveral;
    found = static_cast<int>(i);
  }
  return found;
}

// The instance that an entry "MIG-…" names: by its own UUID, or in the older form "MIG-GPU-UUID/3/0" by those
// of its GPU and the numbers of both instances.
std::optional<Gpu> instance_with(const std::vector<PhysicalGpu>& gpus, const std::string& entry) {
  std::optional<Gpu> found;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    for (const MigInstance& instance : gpus[i].instances) {
      const std::string older = "MIG-" + gpus[i].uuid + "/" + std::to_string(instance.gpu_instance) + "/" +
                                std::to_string(instance.compute_instance);
      if (entry.find('/') != std::string::npos ? entry != older : !same_start(instance.uuid, entry)) continue;
      if (found) return std::nullopt;
      found = part(gpus, static_cast<int>(i), instance);
    }
  }
  return found;
}

// GPUs in MIG mode stand for their first instance, and for nothing if they have none.
void add(const std::vector<PhysicalGpu>& gpus, int number, std::vector<Gpu>* chosen) {
  const PhysicalGpu& gpu = gpus[static_cast<std::size_t>(number)];
  if (!gpu.mig) return chosen->push_back(whole(gpus, number));
  if (!gpu.instances.empty()) chosen->push_back(part(gpus, number, gpu.instances.front()));
}

std::vector<Gpu> listed(const std::vector<PhysicalGpu>& gpus, std::string_view visible) {
  const bool by_uuid = visible.starts_with("GPU-"), by_instance = visible.starts_with("MIG-");
  std::vector<Gpu> chosen;
  std::vector<std::string> seen;  // what entries stood for
  for (const std::string& entry : entries_of(visible)) {
    if (by_instance) {
      const auto instance = instance_with(gpus, entry);
      if (!instance) break;
      chosen.push_back(*instance);
      seen.push_back(instance->uuid);
    } else {
      const int number =
          by_uuid ? (entry.starts_with("GPU-") ? gpu_with(gpus, entry) : kNone) : number_of(entry);
      if (number < 0 || number >= static_cast<int>(gpus.size())) break;
      add(gpus, number, &chosen);
      seen.push_back(std::to_string(number));
    }
    if (std::find(seen.begin(), seen.end() - 1, seen.back()) != seen.end() - 1) return {};
  }
  return chosen;
}

}  // namespace

std::vector<Gpu> visible_gpus(const std::vector<PhysicalGpu>& gpus, const char* visible) {
  std::vector<Gpu> shown;
  if (visible != nullptr)
    shown = listed(gpus, visible);
  else
    for (std::size_t i = 0; i < gpus.size(); ++i) add(gpus, static_cast<int>(i), &shown);
  const auto instance = std::find_if(shown.begin(), shown.end(), [](const Gpu& gpu) { return gpu.mig; });
  if (instance != shown.end()) shown = {*instance};
  for (std::size_t i = 0; i < shown.size(); ++i) shown[i].index = static_cast<int>(i);
  return shown;
}

GpuSight sight_of(const GpuReading& reading, const char* visible) {
  GpuSight sight{.gpus = visible_gpus(reading.gpus, visible),
                 .why_none = reading.failure,
                 .driver = reading.driver,
                 .cuda = reading.cuda};
  const bool all_mig = std::all_of(reading.gpus.begin(), reading.gpus.end(),
                                   [](const PhysicalGpu& gpu) { return gpu.mig && gpu.instances.empty(); });
  if (!sight.gpus.empty())
    sight.why_none.clear();
  else if (!sight.why_none.empty())
    return sight;
  else if (reading.gpus.empty())
    sight.why_none = "the NVIDIA driver shows none";
  else if (all_mig)
    sight.why_none = "in MIG mode, without an instance";
  else
    sight.why_none = "CUDA_VISIBLE_DEVICES=" + std::string(visible ? visible : "") + " shows none of the " +
                     std::to_string(reading.gpus.size()) + " here";
  return sight;
}

std::string gpus_text(const std::vector<Gpu>& gpus) {
  std::string text;
  for (std::size_t i = 0; i < gpus.size();) {
    std::vector<int> numbers;
    const std::string& name = gpus[i].name;
    const std::uint64_t memory = gpus[i].memory;
    for (; i < gpus.size() && gpus[i].name == name && gpus[i].memory == memory; ++i)
      numbers.push_back(gpus[i].number);
    std::string kind = name;
    if (memory > 0) {
      kind += (kind.empty() ? "" : ", ") + in_gibibytes(memory) + (numbers.size() > 1 ? " each" : "");
    }
    text += (text.empty() ? "" : "; ") + rendezvous::text_of(rendezvous::ranges_of(numbers)) +
            (kind.empty() ? "" : " (" + kind + ")");
  }
  return text;
}

std::string gpu_count_text(const std::vector<Gpu>& gpus) {
  const std::string name = gpus.empty() ? "" : gpus.front().name;
  return std::to_string(gpus.size()) + (gpus.size() == 1 ? " GPU" : " GPUs") +
         (name.empty() ? "" : " (" + name + ")");
}

std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace dtrun
