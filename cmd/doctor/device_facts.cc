#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "agent/core/gpu_trouble.h"
#include "agent/gpu/ask_gpus.h"
#include "agent/health/xid_log.h"
#include "cmd/doctor/node_facts.h"
#include "proto/base/answer.h"
#include "proto/base/text_in.h"

namespace dtrun::doctor {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

GpuFacts facts_of(const PhysicalGpu& gpu) {
  GpuFacts facts{.name = gpu.name, .lost = gpu.lost};
  facts.ecc_errors = static_cast<std::int64_t>(gpu.ecc_errors.value_or(0));
  facts.memory = static_cast<std::int64_t>(gpu.memory);
  facts.memory_used = static_cast<std::int64_t>(gpu.memory_used);
  facts.processes = gpu.processes;
  facts.remap_pending = gpu.health.remap_pending;
  facts.remap_failed = gpu.health.remap_failed;
  facts.throttled = gpu.health.throttled;
  facts.pcie_width = gpu.health.pcie_width;
  facts.pcie_width_most = gpu.health.pcie_width_most;
  facts.links = gpu.health.links;
  facts.links_down = gpu.health.links_down;
  return facts;
}

void read_gpus(const JobSpec& spec, DeviceFacts* devices) {
  if (!agent::driver_may_be_here()) return;
  std::error_code error;
  const std::string self = fs::read_symlink("/proc/self/exe", error);
  const GpuReading reading = agent::ask_gpus({self, "gpus", "--json"}, 1500ms);
  for (const PhysicalGpu& gpu : reading.gpus) devices->gpus.push_back(facts_of(gpu));
  devices->gpu_failure = reading.failure;
  devices->driver = reading.driver;
  devices->cuda = reading.cuda > 0 ? cuda_version_text(reading.cuda) : "";
  devices->gpus_wanted = !spec.gpus.empty();
}

// NCCL opens nothing before a communicator is made.
std::string nccl_version() {
  void* library = nullptr;
  if (const char* folder = std::getenv("DTRUN_CUDA_LIBRARY_PATH"))
    library = dlopen((std::string(folder) + "/libnccl.so.2").c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) library = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return "";
  int version = 0;
  auto* const tell = reinterpret_cast<int (*)(int*)>(dlsym(library, "ncclGetVersion"));
  if (tell == nullptr || tell(&version) != 0) return "";
  const int major = version / 10000, minor = version / 100 % 100, patch = version % 100;
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

// The newest few of the kernel's log, which goes back to the start of the machine.
std::vector<std::string> xids_so_far() {
  constexpr std::size_t kMost = 3;
  agent::XidLog log("/dev/kmsg", agent::XidLog::From::kBeginning);
  const std::vector<Xid>& found = log.read();
  std::vector<std::string> texts;
  for (auto one = found.rbegin(); one != found.rend() && texts.size() < kMost; ++one)
    texts.push_back("GPU " + one->pci + ": " + xid_text(one->number));
  return texts;
}

std::vector<std::string> rdma_down() {
  std::vector<std::string> down;
  std::error_code error;
  for (const auto& card : fs::directory_iterator("/sys/class/infiniband", error)) {
    for (const auto& port : fs::directory_iterator(card.path() / "ports", error)) {
      const std::string state = line_in(port.path() / "state");
      if (!state.empty() && state.find("ACTIVE") == std::string::npos)
        down.push_back(card.path().filename().string() + " port " + port.path().filename().string() + " is " +
                       state);
    }
  }
  return down;
}

std::vector<std::string> failing_disks() {
  std::vector<std::string> failing;
  std::error_code error;
  for (const auto& disk : fs::directory_iterator("/sys/block", error)) {
    const std::string name = disk.path().filename();
    const std::string missing = line_in(disk.path() / "md/degraded");
    if (std::atoi(missing.c_str()) > 0) failing.push_back(name + ": " + missing + " of its disks missing");
    const std::string state = line_in(disk.path() / "device/state");
    if (state == "offline" || state == "dead") failing.push_back(name + " is " + state);
    if (geteuid() != 0 || !fs::exists(disk.path() / "device", error)) continue;
    for (const char* smartctl : {"/usr/sbin/smartctl", "/sbin/smartctl"}) {
      if (access(smartctl, X_OK) != 0) continue;
      const CommandAnswer answer = answer_of({smartctl, "-H", "/dev/" + name}, "", 500ms);
      if (answer.text.find("FAILED") != std::string::npos) failing.push_back(name + ": SMART says FAILED");
      break;
    }
  }
  return failing;
}

}  // namespace

DeviceFacts read_devices(const JobSpec& spec) {
  DeviceFacts devices;
  read_gpus(spec, &devices);
  if (!devices.gpus.empty()) devices.nccl = nccl_version();
  devices.xids = xids_so_far();
  devices.rdma_down = rdma_down();
  devices.failing = failing_disks();
  return devices;
}

}  // namespace dtrun::doctor
