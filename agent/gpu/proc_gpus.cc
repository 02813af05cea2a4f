#include "agent/gpu/proc_gpus.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <system_error>
#include <vector>

#include "proto/base/text_in.h"
#include "proto/core/text.h"

namespace dtrun::agent {
namespace {

namespace fs = std::filesystem;

// The lines "Key: value" of a file.
std::map<std::string, std::string> facts_in(const fs::path& file) {
  std::map<std::string, std::string> facts;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos)
      facts[line.substr(0, colon)] = trimmed(std::string_view(line).substr(colon + 1));
  }
  return facts;
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul …": the first word that is a version.
std::string driver_version(const fs::path& root) {
  std::istringstream words(line_in(root / "proc/driver/nvidia/version"));
  for (std::string word; words >> word;) {
    const bool digits = std::isdigit(static_cast<unsigned char>(word[0])) != 0;
    if (digits && word.find('.') != std::string::npos) return word;
  }
  return "";
}

}  // namespace

int numa_node_of(const fs::path& root, const std::string& pci) {
  return static_cast<int>(number_in(root / "sys/bus/pci/devices" / pci / "numa_node").value_or(-1));
}

GpuReading gpus_in_proc(const fs::path& root) {
  GpuReading reading;
  std::error_code error;
  std::vector<fs::path> addresses;
  for (const auto& entry : fs::directory_iterator(root / "proc/driver/nvidia/gpus", error))
    addresses.push_back(entry.path());
  std::sort(addresses.begin(), addresses.end());
  for (const fs::path& address : addresses) {
    std::map<std::string, std::string> facts = facts_in(address / "information");
    const std::string minor = facts["Device Minor"];
    if (minor.empty() || !fs::exists(root / ("dev/nvidia" + minor), error)) continue;
    PhysicalGpu gpu{.uuid = facts["GPU UUID"], .name = facts["Model"], .pci = address.filename()};
    gpu.numa_node = numa_node_of(root, gpu.pci);
    reading.gpus.push_back(std::move(gpu));
  }
  reading.driver = driver_version(root);
  if (reading.gpus.empty() && reading.driver.empty()) reading.failure = "no NVIDIA driver";
  return reading;
}

}  // namespace dtrun::agent
