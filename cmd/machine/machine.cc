#include "cmd/machine/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "agent/gpu/ask_gpus.h"
#include "agent/gpu/nvml.h"
#include "cmd/machine/control_groups.h"
#include "proto/base/text_in.h"
#include "proto/core/text.h"
#include "worker/config/bf16.h"
#include "worker/config/cuda.h"

namespace dtrun::cmd {
namespace {

namespace fs = std::filesystem;

std::map<int, int> nodes_of_cpus(const fs::path& root) {
  std::map<int, int> nodes;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root / "sys/devices/system/node", error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("node") || name.find_first_not_of("0123456789", 4) != std::string::npos) continue;
    for (int cpu : parse_cpu_list(line_in(entry.path() / "cpulist")))
      nodes[cpu] = std::atoi(name.c_str() + 4);
  }
  return nodes;
}

int lowest(const std::set<int>& cpus, int otherwise) { return cpus.empty() ? otherwise : *cpus.begin(); }

// The lowest CPU that shares the cache of the highest level with `cpu`.
int last_level_cache(const fs::path& cpu_dir, int cpu) {
  std::int64_t highest = -1;
  int sharer = cpu;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(cpu_dir / "cache", error)) {
    const std::int64_t level = number_in(entry.path() / "level").value_or(-1);
    if (level <= highest || line_in(entry.path() / "type") == "Instruction") continue;
    highest = level;
    sharer = lowest(parse_cpu_list(line_in(entry.path() / "shared_cpu_list")), cpu);
  }
  return sharer;
}

// Without its persistence mode a driver takes a second or two for each GPU.
constexpr std::chrono::seconds kDriverPatience{60};

// The number behind `key` in a file of lines "key 123" or "key: 123 kB".
std::optional<std::uint64_t> read_value(const fs::path& path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  std::uint64_t value = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    if (words >> word >> value && (word == key || word == key + ":")) return value;
  }
  return std::nullopt;
}

// The memory that a control group leaves. Files that were read count as used, but are dropped when memory is
// short.
std::optional<worker::Available> memory_left(const ControlGroup& group) {
  const char* const limit_file = group.unified ? "memory.max" : "memory.limit_in_bytes";
  const char* const usage_file = group.unified ? "memory.current" : "memory.usage_in_bytes";
  const auto limit = number_in(group.folder / limit_file), usage = number_in(group.folder / usage_file);
  if (!limit || !usage) return std::nullopt;  // "max" is no number
  const char* const reclaimable_key = group.unified ? "inactive_file" : "total_inactive_file";
  const auto reclaimable =
      static_cast<std::int64_t>(read_value(group.folder / "memory.stat", reclaimable_key).value_or(0));
  const std::int64_t used = *usage - std::min(*usage, reclaimable);
  return worker::Available{.bytes = static_cast<std::uint64_t>(*limit - std::min(*limit, used)),
                           .by = std::string(limit_file) + " of its control group " + group.name};
}

}  // namespace

std::set<int> allowed_cpus() {
  std::vector<cpu_set_t> sets(16);  // 16384 CPUs, more than Linux knows
  const std::size_t bytes = sets.size() * sizeof(cpu_set_t);
  std::set<int> allowed;
  if (sched_getaffinity(0, bytes, sets.data()) != 0) return allowed;
  for (std::size_t cpu = 0; cpu < bytes * 8; ++cpu) {
    if (CPU_ISSET_S(cpu, bytes, sets.data())) allowed.insert(static_cast<int>(cpu));
  }
  return allowed;
}

std::optional<worker::Available> read_available_memory(const fs::path& root) {
  std::optional<worker::Available> least;
  if (const auto kilobytes = read_value(root / "proc/meminfo", "MemAvailable"))
    least = {.bytes = *kilobytes * 1024, .by = "MemAvailable in /proc/meminfo"};
  for (const ControlGroup& group : control_groups(root, "memory")) {
    auto left = memory_left(group);
    if (left && (!least || left->bytes < least->bytes)) least = std::move(left);
  }
  return least;
}

std::set<int> parse_cpu_list(const std::string& text) {
  std::set<int> cpus;
  for (const std::string& range : split(text, ',')) {
    std::istringstream ends(range);
    int first = 0, last = 0;
    if (!(ends >> first)) break;
    last = ends.get() == '-' && ends >> last ? last : first;
    for (int cpu = first; cpu <= last; ++cpu) cpus.insert(cpu);
  }
  return cpus;
}

std::vector<Cpu> read_topology(const fs::path& root, const std::set<int>& allowed) {
  const std::map<int, int> nodes = nodes_of_cpus(root);
  std::vector<Cpu> cpus;
  for (int id : allowed) {
    const fs::path dir = root / "sys/devices/system/cpu" / ("cpu" + std::to_string(id));
    const auto node = nodes.find(id);
    Cpu cpu;
    cpu.id = id;
    cpu.node = node == nodes.end() ? 0 : node->second;
    cpu.package = std::max(0, static_cast<int>(number_in(dir / "topology/physical_package_id").value_or(0)));
    cpu.core = lowest(parse_cpu_list(line_in(dir / "topology/thread_siblings_list")), id);
    cpu.cache = last_level_cache(dir, id);
    cpus.push_back(cpu);
  }
  return cpus;
}

UsableCpus usable_cpus() {
  const int allowed = std::max<int>(1, static_cast<int>(allowed_cpus().size()));
  const auto quota = read_cpu_quota("/");
  // Half a CPU's time is no use: its thread would wait when the others have had theirs.
  if (!quota || quota->cpus >= allowed) return {.count = allowed};
  return {.count = std::max(1, static_cast<int>(quota->cpus)), .by = quota->by};
}

bool in_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  for (const std::string& folder : split(path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin", ':'))
    if (access(((folder.empty() ? "." : folder) + "/" + program).c_str(), X_OK) == 0) return true;
  return false;
}

std::string venv_python(const fs::path& program) {
  std::error_code error;
  const fs::path environment = program.parent_path().parent_path();
  const auto has = [&](const char* name) { return fs::exists(environment / name, error); };
  const fs::path python = program.parent_path() / "python3";
  const bool of_a_tool = has("pipx_metadata.json") || has("uv-receipt.toml");
  return has("pyvenv.cfg") && !of_a_tool && access(python.c_str(), X_OK) == 0 ? python.string() : "";
}

Machine this_machine() {
  Machine machine;
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const std::set<int> cpus = allowed_cpus();
  const UsableCpus usable = usable_cpus();
  machine.cpus = usable.count;
  machine.cpus_by = usable.by;
  machine.topology = read_topology("/", cpus);
  machine.gpus = [self](bool asked_for) {
    // To ask takes a process and the driver's time, which jobs of the CPU must not lose.
    if (!asked_for && !agent::driver_may_be_here()) return GpuSight{.why_none = agent::Nvml::kMissing};
    const GpuReading reading = agent::ask_gpus({self.string(), "gpus", "--json"}, kDriverPatience);
    return sight_of(reading, std::getenv("CUDA_VISIBLE_DEVICES"));
  };
  machine.has_driver = agent::driver_may_be_here();
  machine.gpu_reader = {self.string(), "gpus", "--on_request"};
  machine.worker_cuda = worker::cuda_of_this_build();
  machine.bf16 = worker::processor_has_bf16();
  machine.worker_binary = (self.parent_path() / "dtrun-worker").string();
  machine.venv_python = venv_python(self);
  return machine;
}

}  // namespace dtrun::cmd
