#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "agent/system/resource_limits.h"
#include "cmd/doctor/node_facts.h"
#include "cmd/machine/control_groups.h"
#include "cmd/machine/machine.h"
#include "cmd/plan/memory_check.h"
#include "proto/base/clock.h"
#include "proto/base/text_in.h"
#include "proto/core/process_stat.h"

namespace dtrun::doctor {
namespace {

namespace fs = std::filesystem;

std::int64_t limit_of(__rlimit_resource which) {
  rlimit limit{};
  if (getrlimit(which, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return -1;
  return static_cast<std::int64_t>(limit.rlim_cur);
}

// Nodes of the job, as far as it says.
int workers_of_job(const JobSpec& spec) { return spec.nproc * std::max(1, spec.nodes.max); }

int lanes_of(const JobSpec& spec) {
  const auto* const trainer = std::get_if<BuiltinTrainer>(&spec.program);
  return trainer != nullptr ? trainer->lanes : 1;
}

std::vector<int> numbered_entries(const char* folder) {
  std::vector<int> numbers;
  DIR* const entries = opendir(folder);
  if (entries == nullptr) return numbers;
  while (const dirent* entry = readdir(entries))
    if (const int number = std::atoi(entry->d_name); number > 0) numbers.push_back(number);
  closedir(entries);
  return numbers;
}

std::int64_t tasks_of_user() {
  std::int64_t tasks = 0;
  struct stat owner {};
  for (const int pid : numbered_entries("/proc")) {
    if (stat(("/proc/" + std::to_string(pid)).c_str(), &owner) != 0 || owner.st_uid != getuid()) continue;
    const auto process = parse_stat(text_in("/proc/" + std::to_string(pid) + "/stat"));
    tasks += process ? process->threads : 1;
  }
  return tasks;
}

// That may still be started; -1: no limit.
std::int64_t processes_left() {
  std::int64_t least = -1;
  const auto take = [&least](std::int64_t limit, std::int64_t used) {
    const std::int64_t left = std::max<std::int64_t>(0, limit - used);
    if (limit >= 0 && (least < 0 || left < least)) least = left;
  };
  if (const std::int64_t limit = limit_of(RLIMIT_NPROC); geteuid() != 0 && limit >= 0)
    take(limit, tasks_of_user());
  for (const ControlGroup& group : cmd::control_groups("/", "pids"))
    take(number_in(group.folder / "pids.max").value_or(-1),
         number_in(group.folder / "pids.current").value_or(0));
  return least;
}

// Files of NCCL's in /dev/shm that no process of ours has mapped.
std::vector<std::string> stale_shm() {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/dev/shm", error))
    if (const std::string name = entry.path().filename(); name.starts_with("nccl-")) files.push_back(name);
  if (files.empty()) return files;
  for (const int pid : numbered_entries("/proc")) {
    const std::string maps = text_in("/proc/" + std::to_string(pid) + "/maps");
    std::erase_if(
        files, [&](const std::string& file) { return maps.find("/dev/shm/" + file) != std::string::npos; });
  }
  return files;
}

CpuSample::Times times_now() {
  CpuSample::Times times;
  const double tick = 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK));
  std::ifstream file("/proc/stat");
  std::string word;
  double user = 0, nice = 0, system = 0, wait = 0, irq = 0, soft = 0;
  file >> word >> user >> nice >> system >> times.idle >> wait >> irq >> soft >> times.steal;
  times.idle = (times.idle + wait) * tick;
  times.steal *= tick;
  times.all = (user + nice + system + irq + soft) * tick + times.idle + times.steal;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage use{};
    getrusage(static_cast<__rusage_who>(who), &use);
    for (const timeval& part : {use.ru_utime, use.ru_stime})
      times.own += static_cast<double>(part.tv_sec) + static_cast<double>(part.tv_usec) / 1e6;
  }
  for (const int pid : numbered_entries("/proc")) {
    const auto process = parse_stat(text_in("/proc/" + std::to_string(pid) + "/stat"));
    if (pid != getpid() && process)
      times.processes.emplace_back(pid, static_cast<double>(process->own_ticks) * tick);
  }
  return times;
}

std::string busiest(const CpuSample::Times& begin, const CpuSample::Times& end) {
  int worst = 0;
  double most = 0;
  for (const auto& [pid, seconds] : end.processes) {
    const auto before = std::ranges::find(begin.processes, pid, [](const auto& one) { return one.first; });
    const double used = seconds - (before == begin.processes.end() ? 0 : before->second);
    if (used > most) most = used, worst = pid;
  }
  if (worst == 0) return "";
  return line_in("/proc/" + std::to_string(worst) + "/comm") + " (pid " + std::to_string(worst) + ")";
}

std::string vector_level() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return "AVX-512";
  if (__builtin_cpu_supports("avx2")) return "AVX2";
  return "SSE2";
#else
  return "";
#endif
}

int numa_nodes() {
  int count = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/sys/devices/system/node", error)) {
    const std::string name = entry.path().filename();
    count += name.starts_with("node") && name.size() > 4 &&
             name.find_first_not_of("0123456789", 4) == std::string::npos;
  }
  return std::max(1, count);
}

}  // namespace

LimitFacts read_limits(const JobSpec& spec) {
  // What a process of PyTorch opens itself, and its connections to the others.
  constexpr std::int64_t kOfProcess = 512, kPerPeer = 4;
  constexpr std::int64_t kThreadsOfWorker = 12, kOthers = 32;
  LimitFacts limits{.root = geteuid() == 0};
  timex clock{};
  limits.clock_synchronised = adjtimex(&clock) >= 0 && (clock.status & STA_UNSYNC) == 0;
  limits.files = limit_of(RLIMIT_NOFILE);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) limits.most_files = static_cast<std::int64_t>(files.rlim_max);
  limits.files_wanted = kOfProcess + kPerPeer * workers_of_job(spec);
  limits.processes = processes_left();
  limits.processes_wanted = spec.nproc * (lanes_of(spec) + kThreadsOfWorker) + kOthers;
  limits.locked_memory = limit_of(RLIMIT_MEMLOCK);
  limits.core_size = limit_of(RLIMIT_CORE);
  limits.core_pattern = line_in("/proc/sys/kernel/core_pattern");
  limits.ptrace_scope = static_cast<int>(number_in("/proc/sys/kernel/yama/ptrace_scope").value_or(0));
  for (const char* program : {"py-spy", "gdb"})
    if (cmd::in_path(program)) limits.debuggers.emplace_back(program);
  return limits;
}

MemoryFacts read_memory(const JobSpec& spec, bool knows_job) {
  MemoryFacts memory;
  struct statvfs shm {};
  if (statvfs("/dev/shm", &shm) == 0) {
    memory.shm_size = static_cast<std::int64_t>(shm.f_blocks * shm.f_frsize);
    memory.shm_free = static_cast<std::int64_t>(shm.f_bavail * shm.f_frsize);
  }
  const auto* const trainer = std::get_if<BuiltinTrainer>(&spec.program);
  memory.shm_matters = !knows_job || trainer == nullptr || trainer->cuda;
  memory.stale_shm = stale_shm();
  const auto available = cmd::read_available_memory("/");
  if (available) {
    memory.available = static_cast<std::int64_t>(available->bytes);
    memory.available_by = available->by;
  }
  const Status own = agent::check_memory_limit();
  memory.shortage = (own.ok() ? cmd::check_memory(spec, available) : own).message();
  struct sysinfo system {};
  if (sysinfo(&system) == 0)
    memory.swap_used = static_cast<std::int64_t>((system.totalswap - system.freeswap) * system.mem_unit);
  return memory;
}

CpuSample::CpuSample() : begin_(times_now()), began_at_(steady_seconds()) {}

CpuFacts CpuSample::read(const JobSpec& spec) const {
  constexpr double kLongEnough = 0.3;  // /proc counts in hundredths of a second
  while (steady_seconds() - began_at_ < kLongEnough)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const Times end = times_now();
  CpuFacts cpu;
  const double busy = (end.all - end.idle - end.steal) - (begin_.all - begin_.idle - begin_.steal);
  cpu.steal = end.all > begin_.all ? (end.steal - begin_.steal) / (end.all - begin_.all) : 0;
  cpu.others = std::max(0.0, busy - (end.own - begin_.own)) / (steady_seconds() - began_at_);
  cpu.busiest = busiest(begin_, end);
  cpu.allowed = static_cast<int>(cmd::allowed_cpus().size());
  if (const auto quota = cmd::read_cpu_quota("/")) {
    cpu.quota = quota->cpus;
    cpu.quota_by = quota->by;
  }
  cpu.workers = spec.nproc;
  cpu.lanes = lanes_of(spec);
  const fs::path scaling = "/sys/devices/system/cpu/cpu0/cpufreq";
  cpu.governor = line_in(scaling / "scaling_governor");
  cpu.scaling_driver = line_in(scaling / "scaling_driver");
  cpu.numa_nodes = numa_nodes();
  cpu.vectors = vector_level();
  return cpu;
}

}  // namespace dtrun::doctor
