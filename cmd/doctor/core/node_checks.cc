#include "cmd/doctor/core/node_checks.h"

#include <algorithm>
#include <optional>

#include "cmd/doctor/core/words.h"
#include "proto/core/text.h"

namespace dtrun::doctor {
namespace {

constexpr std::int64_t kMega = 1 << 20;

// A finding without the check's name. Nothing: the check cannot be made here.
struct CheckResult {
  Grade grade = Grade::kPassed;
  std::string text;
  std::string remedy = {};
};
using MaybeResult = std::optional<CheckResult>;

CheckResult passed(std::string text) { return {.grade = Grade::kPassed, .text = std::move(text)}; }
CheckResult warning(std::string text, std::string remedy) {
  return {.grade = Grade::kWarning, .text = std::move(text), .remedy = std::move(remedy)};
}
CheckResult failed(std::string text, std::string remedy) {
  return {.grade = Grade::kFailed, .text = std::move(text), .remedy = std::move(remedy)};
}

bool has(const std::vector<std::string>& texts, const std::string& text) {
  return std::ranges::count(texts, text) > 0;
}

MaybeResult plan(const NodeFacts& facts) {
  const std::string& problem = facts.program.plan_problem;
  if (problem.empty()) return passed("accepted");
  return failed(problem, "the job would be refused here with this message");
}

MaybeResult worker(const NodeFacts& facts) {
  const ProgramFacts& program = facts.program;
  if (program.worker.empty())
    return failed(program.worker_path + " does not start",
                  "install dtrun as a whole: both programs belong in one folder");
  if (program.worker == program.worker_wanted) return passed(program.worker);
  return failed(program.worker_path + " is " + program.worker + ", dtrun wants " + program.worker_wanted,
                "install both programs of one build");
}

MaybeResult name_of_host(const NodeFacts& facts) {
  const NameFacts& name = facts.name;
  const std::string line = "a line \"ADDRESS " + name.host + "\" in /etc/hosts, or in the name service";
  if (!name.error.empty()) return warning(name.host + " has no address: " + name.error, line);
  const auto known = [&](const std::string& address) { return has(name.own, address); };
  const bool loopback = std::ranges::all_of(name.means, [](const auto& one) { return is_loopback(one); });
  if (loopback && !name.has_peers)
    return passed(name.host + " is " + join(name.means) + "; other nodes would need more");
  if (loopback)
    return warning(name.host + " means " + join(name.means) + " here, which other nodes cannot reach",
                   "programs that bind to the host's name (Gloo, NCCL, MPI) want " + line);
  const bool ours = std::ranges::any_of(
      name.means, [&](const std::string& address) { return known(address) && !is_loopback(address); });
  if (ours) return passed(name.host + " is " + join(name.means));
  return failed(name.host + " means " + join(name.means) + ", which is another machine's", line);
}

MaybeResult route(const NodeFacts& facts) {
  const RouteFacts& route = facts.route;
  if (!route.problem.empty())
    return failed("no way to " + facts.name.endpoint + ": " + route.problem,
                  "is the name right, and the network up?");
  if (route.address.empty()) return std::nullopt;
  std::string text = route.address + (route.interface.empty() ? "" : " on " + route.interface);
  if (route.mtu > 0) text += ", MTU " + std::to_string(route.mtu);
  if (route.speed > 0) text += ", link " + rate_text(route.speed);
  constexpr double kTooMany = 1e-4;
  if (route.errors > 100 && static_cast<double>(route.errors) > kTooMany * static_cast<double>(route.packets))
    return warning(text + ": " + std::to_string(route.errors) + " of " + std::to_string(route.packets) +
                       " packets had errors",
                   "cable, transceiver or switch port of " + route.interface + " (ip -s link)");
  if (route.carrier_losses > 10)
    return warning(
        text + ": its link was lost " + std::to_string(route.carrier_losses) + " times since the start",
        "cable, transceiver or switch port of " + route.interface);
  return passed(text);
}

MaybeResult endpoint(const NodeFacts& facts) {
  const NameFacts& name = facts.name;
  if (name.listener.empty()) return std::nullopt;
  if (name.listener == "dtrun") return passed("a dtrun listens on " + name.endpoint);
  if (name.listener == "nobody")
    return passed(name.endpoint +
                  (name.endpoint_is_ours ? " is free" : " is silent: no dtrun runs there yet"));
  return failed(name.listener, "another port (--rdzv_endpoint HOST:PORT), or the key of the dtrun there");
}

MaybeResult clock(const NodeFacts& facts) {
  if (facts.limits.clock_synchronised) return passed("synchronised");
  return warning("not synchronised",
                 "run chrony or systemd-timesyncd: nothing depends on it but reading logs");
}

MaybeResult open_files(const NodeFacts& facts) {
  const LimitFacts& limits = facts.limits;
  if (limits.files < 0) return std::nullopt;
  const std::string text = "limit is " + std::to_string(limits.files);
  if (limits.files >= limits.files_wanted) return passed(text);
  return warning(text + ", this job's nodes may want " + std::to_string(limits.files_wanted),
                 "ulimit -n " + std::to_string(limits.files_wanted) +
                     (limits.most_files >= limits.files_wanted ? "" : ", after raising the hard limit"));
}

MaybeResult processes(const NodeFacts& facts) {
  const LimitFacts& limits = facts.limits;
  if (limits.processes < 0) return passed("no limit");
  const std::string text = std::to_string(limits.processes) + " more may start";
  if (limits.processes >= limits.processes_wanted) return passed(text);
  return failed(text + ", the workers' processes and threads are " + std::to_string(limits.processes_wanted),
                "ulimit -u, or pids.max of the control group");
}

// NCCL and RDMA register memory.
MaybeResult locked_memory(const NodeFacts& facts) {
  constexpr std::int64_t kEnough = 64 * kMega;
  const std::int64_t limit = facts.limits.locked_memory;
  if (limit < 0 || facts.limits.root) return passed("no limit");
  const std::string text = "limit is " + bytes_text(limit);
  if (facts.devices.gpus.empty() || limit >= kEnough) return passed(text);
  return warning(text, "ulimit -l unlimited, for NCCL and RDMA");
}

MaybeResult core_files(const NodeFacts& facts) {
  const std::int64_t size = facts.limits.core_size;
  return passed(size == 0 ? "none are written" : facts.limits.core_pattern);
}

MaybeResult shared_memory(const NodeFacts& facts) {
  constexpr std::int64_t kSmall = 128 * kMega;
  const MemoryFacts& memory = facts.memory;
  if (memory.shm_size < 0) return std::nullopt;
  const std::string text =
      "/dev/shm has " + bytes_text(memory.shm_size) + ", " + bytes_text(memory.shm_free) + " free";
  const std::string more = "docker --shm-size, in a pod an emptyDir with medium: Memory";
  if (memory.shm_matters && memory.shm_size < kSmall)
    return warning(text + ": NCCL and PyTorch's loaders may end with SIGBUS", more);
  if (!memory.stale_shm.empty())
    return warning(text + "; " + counted(static_cast<std::int64_t>(memory.stale_shm.size()), "file") +
                       " of NCCL's that no process has: " + memory.stale_shm.front() +
                       (memory.stale_shm.size() > 1 ? " …" : ""),
                   "rm /dev/shm/" + memory.stale_shm.front());
  if (memory.shm_matters && memory.shm_free < kSmall / 2)
    return warning(text, "remove what fills it (ls -l /dev/shm), or " + more);
  return passed(text);
}

MaybeResult memory(const NodeFacts& facts) {
  const MemoryFacts& memory = facts.memory;
  if (!memory.shortage.empty())
    return failed(memory.shortage, "the job would be refused here with this message");
  if (memory.available < 0) return std::nullopt;
  std::string text = bytes_text(memory.available) + " to be had (" + memory.available_by + ")";
  if (memory.available < 256 * kMega) return warning(text, "end what uses it (ps aux --sort -rss)");
  if (memory.swap_used > 64 * kMega) text += ", " + bytes_text(memory.swap_used) + " swapped out";
  return passed(text);
}

MaybeResult cpus(const NodeFacts& facts) {
  const CpuFacts& cpu = facts.cpu;
  const int wanted = cpu.workers * cpu.lanes;
  const std::string job = counted(cpu.workers, "worker") + " x " + counted(cpu.lanes, "lane");
  if (cpu.quota >= 0 && cpu.quota < wanted)
    return warning(cpu.quota_by + " gives " + decimals(cpu.quota, 1) + " CPUs' time for " + job,
                   "a higher quota, or fewer lanes (--lanes)");
  if (cpu.allowed < wanted)
    return warning(counted(cpu.allowed, "CPU") + " may be used, by " + job,
                   "fewer workers or lanes, or a wider CPU set");
  return passed(counted(cpu.allowed, "CPU") + " for " + job);
}

MaybeResult busy(const NodeFacts& facts) {
  constexpr double kMuch = 0.25;
  const CpuFacts& cpu = facts.cpu;
  if (cpu.steal > 0.05)
    return warning("the hypervisor takes " + percent_text(cpu.steal) + " of the CPUs' time",
                   "a machine that shares its cores with others trains more slowly");
  const double part = cpu.allowed > 0 ? cpu.others / cpu.allowed : 0;
  if (part < kMuch) return passed("other processes use " + decimals(cpu.others, 1) + " CPUs");
  return warning("other processes use " + decimals(cpu.others, 1) + " of " + counted(cpu.allowed, "CPU") +
                     (cpu.busiest.empty() ? "" : ", most of it " + cpu.busiest),
                 "end them, or train elsewhere: all ranks wait for the slowest");
}

MaybeResult governor(const NodeFacts& facts) {
  const CpuFacts& cpu = facts.cpu;
  if (cpu.governor.empty()) return std::nullopt;
  const bool scales_itself =
      cpu.scaling_driver.starts_with("intel_pstate") || cpu.scaling_driver.starts_with("amd-pstate");
  if (cpu.governor != "powersave" || scales_itself) return passed(cpu.governor);
  return warning("powersave keeps the CPUs slow", "cpupower frequency-set -g performance");
}

MaybeResult numa(const NodeFacts& facts) {
  const int nodes = facts.cpu.numa_nodes;
  return passed(nodes > 1 ? counted(nodes, "NUMA node") + "; --numa_binding node binds each worker to one"
                          : "one node");
}

MaybeResult vectors(const NodeFacts& facts) {
  const CpuFacts& cpu = facts.cpu;
  if (cpu.vectors.empty()) return std::nullopt;
  if (cpu.vectors != "SSE2" || facts.devices.gpus_wanted) return passed(cpu.vectors);
  return warning(
      "this processor has no AVX2: the built-in trainer is slow, and its bits are other than elsewhere",
      "another machine");
}

MaybeResult output(const NodeFacts& facts) {
  constexpr std::int64_t kWanted = 3;  // the newest, the one before, the one that is being written
  const DiskFacts& disk = facts.disk;
  if (disk.output_dir.empty()) return std::nullopt;
  if (!disk.problem.empty())
    return failed(disk.output_dir + ": " + disk.problem, "another output_dir, or its owner and mode");
  const std::string left = disk.output_dir + " has " + bytes_text(disk.free) + " free";
  if (disk.free < kWanted * disk.checkpoint || disk.free < kMega)
    return failed(left + ", three checkpoints need " + bytes_text(kWanted * disk.checkpoint),
                  "make room, or another output_dir");
  if (!disk.lock_problem.empty())
    return warning(disk.output_dir + ": locks of files do not work (" + disk.lock_problem + ")",
                   "two runs could write there at once: mount it with locks (NFS: without nolock)");
  if (disk.write_rate < 0) return passed(left);
  const double seconds = static_cast<double>(disk.checkpoint) / disk.write_rate;
  const std::string speed =
      left + ", writes " + bytes_text(static_cast<std::int64_t>(disk.write_rate)) + "/s";
  if (disk.write_rate < 5 * kMega || seconds > 120)
    return warning(speed + ": a checkpoint takes " + decimals(seconds, 0) + " s",
                   "a faster disk, or a larger save_steps");
  return passed(speed + (disk.checkpoint > 0 ? ", a checkpoint takes " + decimals(seconds, 1) + " s" : ""));
}

MaybeResult data(const NodeFacts& facts) {
  const DiskFacts& disk = facts.disk;
  if (disk.data.empty()) return std::nullopt;
  if (!disk.data_problem.empty())
    return failed(disk.data + ": " + disk.data_problem, "data.path of the config, on this node");
  if (disk.read_rate < 0) return passed(disk.data);
  const std::string text =
      disk.data + " is read at " + bytes_text(static_cast<std::int64_t>(disk.read_rate)) + "/s";
  if (disk.read_rate < 10 * kMega) return warning(text, "a copy on a disk of this node");
  return passed(text);
}

MaybeResult disks(const NodeFacts& facts) {
  const std::vector<std::string>& failing = facts.devices.failing;
  if (failing.empty()) return passed("none is known to fail");
  return failed(join(failing, "; "), "replace it before it holds checkpoints");
}

MaybeResult stacks(const NodeFacts& facts) {
  const LimitFacts& limits = facts.limits;
  const bool possible = limits.ptrace_scope < 2 || (limits.root && limits.ptrace_scope == 2);
  const std::string tools =
      limits.debuggers.empty() ? "without py-spy and gdb: the kernel's only" : join(limits.debuggers);
  if (possible) return passed("of workers that hang can be read, " + tools);
  return warning(
      "of workers that hang cannot be read: ptrace_scope is " + std::to_string(limits.ptrace_scope),
      "sysctl kernel.yama.ptrace_scope=1");
}

std::string gpu_number(std::size_t index) { return "GPU " + std::to_string(index); }

MaybeResult gpus(const NodeFacts& facts) {
  const DeviceFacts& devices = facts.devices;
  if (!devices.gpu_failure.empty() && devices.gpus.empty())
    return failed(devices.gpu_failure, "nvidia-smi; the driver's module may not fit its library: reboot");
  if (devices.gpus.empty()) return std::nullopt;
  const auto count = static_cast<int>(devices.gpus.size());
  const std::string text = counted(count, "GPU") + " (" + devices.gpus.front().name + "), driver " +
                           devices.driver + (devices.cuda.empty() ? "" : ", CUDA " + devices.cuda);
  for (std::size_t i = 0; i < devices.gpus.size(); ++i)
    if (devices.gpus[i].lost)
      return failed(gpu_number(i) + " does not answer", "nvidia-smi -r, or reboot the node");
  if (!devices.gpus_wanted || facts.cpu.workers <= count) return passed(text);
  return failed(text + " for " + counted(facts.cpu.workers, "worker"),
                "--nproc_per_node " + std::to_string(count));
}

MaybeResult gpu_memory(const NodeFacts& facts) {
  const std::vector<GpuFacts>& gpus = facts.devices.gpus;
  if (gpus.empty()) return std::nullopt;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const GpuFacts& gpu = gpus[i];
    if (gpu.remap_failed) return failed(gpu_number(i) + ": its spare rows are used up", "replace it");
    if (gpu.ecc_errors > 0 || gpu.remap_pending)
      return failed(
          gpu_number(i) + (gpu.remap_pending ? ": rows wait to be remapped"
                                             : ": " + counted(gpu.ecc_errors, "error") + " of its memory"),
          "reset it (nvidia-smi -r), and watch whether it comes back");
  }
  for (std::size_t i = 0; i < gpus.size(); ++i)
    if (gpus[i].memory_used > gpus[i].memory / 20 && !gpus[i].processes.empty())
      return warning(gpu_number(i) + ": " + bytes_text(gpus[i].memory_used) + " are held by others (pid " +
                         std::to_string(gpus[i].processes.front()) + ")",
                     "end them, or leave it out with CUDA_VISIBLE_DEVICES");
  return passed("free, no errors");
}

MaybeResult gpu_speed(const NodeFacts& facts) {
  const std::vector<GpuFacts>& gpus = facts.devices.gpus;
  if (gpus.empty()) return std::nullopt;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const GpuFacts& gpu = gpus[i];
    if (gpu.links_down > 0)
      return failed(gpu_number(i) + ": " + std::to_string(gpu.links_down) + " of " +
                        counted(gpu.links, "NVLink") + " are down",
                    "nvidia-smi nvlink -s; the fabric manager's log");
    if (!gpu.throttled.empty())
      return warning(gpu_number(i) + " is slowed down: " + join(gpu.throttled),
                     "cooling and power supply of the node");
    if (gpu.pcie_width > 0 && gpu.pcie_width < gpu.pcie_width_most)
      return warning(gpu_number(i) + " has " + std::to_string(gpu.pcie_width) + " of " +
                         std::to_string(gpu.pcie_width_most) + " PCIe lanes",
                     "reseat the card or its riser");
  }
  return passed("not slowed down");
}

MaybeResult xids(const NodeFacts& facts) {
  const DeviceFacts& devices = facts.devices;
  if (devices.gpus.empty() && devices.xids.empty()) return std::nullopt;
  if (devices.xids.empty()) return passed("none in the kernel's log");
  return warning(join(devices.xids, "; "), "docs.nvidia.com/deploy/xid-errors says what each means");
}

MaybeResult nccl(const NodeFacts& facts) {
  const DeviceFacts& devices = facts.devices;
  if (devices.gpus.empty()) return std::nullopt;
  if (!devices.nccl.empty()) return passed(devices.nccl);
  if (!devices.gpus_wanted || facts.cpu.workers < 2)
    return passed("not found; a Python package may bring its own");
  return warning("libnccl.so.2 is not found", "install NCCL, or name its folder in DTRUN_CUDA_LIBRARY_PATH");
}

MaybeResult rdma(const NodeFacts& facts) {
  if (facts.devices.rdma_down.empty()) return std::nullopt;
  return warning(join(facts.devices.rdma_down, "; "), "cable or switch port; NCCL would use what is left");
}

struct Check {
  const char* name;
  MaybeResult (*look)(const NodeFacts&);
};
constexpr Check kChecks[] = {{"plan", plan},
                             {"worker", worker},
                             {"host name", name_of_host},
                             {"route", route},
                             {"endpoint", endpoint},
                             {"clock", clock},
                             {"open files", open_files},
                             {"processes", processes},
                             {"locked memory", locked_memory},
                             {"core files", core_files},
                             {"shared memory", shared_memory},
                             {"memory", memory},
                             {"CPUs", cpus},
                             {"CPU load", busy},
                             {"governor", governor},
                             {"NUMA", numa},
                             {"vector level", vectors},
                             {"output_dir", output},
                             {"data", data},
                             {"disks", disks},
                             {"stacks", stacks},
                             {"GPUs", gpus},
                             {"GPU memory", gpu_memory},
                             {"GPU speed", gpu_speed},
                             {"Xid errors", xids},
                             {"NCCL", nccl},
                             {"RDMA", rdma}};

}  // namespace

std::vector<Finding> check_node(const NodeFacts& facts) {
  std::vector<Finding> findings;
  for (const Check& check : kChecks)
    if (MaybeResult result = check.look(facts))
      findings.push_back({.check = check.name,
                          .grade = result->grade,
                          .text = std::move(result->text),
                          .remedy = std::move(result->remedy)});
  return findings;
}

Section node_section(const NodeFacts& facts) {
  return {.title = "this node (" + facts.name.host + ")", .note = {}, .findings = check_node(facts)};
}

}  // namespace dtrun::doctor
