// This machine's CPUs with their topology, GPUs and memory, as /sys, /proc and the GPUs' driver tell them.
// Opens no device.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/core/gpu.h"
#include "agent/core/hosting.h"
#include "cmd/cluster/place.h"
#include "cmd/machine/cpu_binding.h"
#include "worker/memory/need.h"

namespace dtrun::cmd {

// this_machine() asks the system once; tests make one up.
struct Machine {
  int cpus = 1;              // that this process may use
  std::string cpus_by = {};  // see UsableCpus
  // The GPUs that CUDA shows a program started here. Asked only if they matter to a job: the driver may take
  // its time. `asked_for`: by the user, so the driver is asked even if nothing suggests that there is one.
  std::function<GpuSight(bool asked_for)> gpus = [](bool) {
    return GpuSight{.why_none = "no NVIDIA driver"};
  };
  bool has_driver = false;                   // that of GPUs may be here, so a program may use some
  std::vector<std::string> gpu_reader = {};  // see JobSpec
  std::string worker_binary = {};
  std::string venv_python = {};    // see venv_python()
  int worker_cuda = 0;             // the version that dtrun-worker was built for, 13000; 0: without CUDA
  bool bf16 = true;                // the built-in trainer can multiply bfloat16 on these CPUs
  std::vector<Cpu> topology = {};  // of those CPUs
  // True if a host's name or address is this machine's; may wait for the name service.
  std::function<bool(const std::string& host)> is_home = [](const std::string&) { return false; };
  // The facts that decide_hosting() has to know of this machine if a job names these hosts.
  std::function<OwnAddresses(const std::vector<std::string>& hosts)> own_addresses =
      [](const std::vector<std::string>&) { return OwnAddresses(); };
  // The view of the cluster that may have started this process; nothing: it is not asked.
  std::optional<ClusterEnvironment> cluster = {};
};

Machine this_machine();

// The CPUs that this process may run on, by their numbers.
std::set<int> allowed_cpus();

// The number of threads that this process can keep busy: its CPUs, or fewer if a control group gives it less
// of their time.
struct UsableCpus {
  int count = 1;
  std::string by = {};  // the limit: "cpu.max of its control group /kubepods"; empty: none
};
UsableCpus usable_cpus();

// A program of this name is in PATH.
bool in_path(const std::string& program);

// The interpreter of the virtual environment that `program` is installed in, which has the packages that its
// scripts import, activated or not. Empty: none, or one that pipx or uv made for a tool alone.
std::string venv_python(const std::filesystem::path& program);

// The CPUs in `allowed`, by id. `root` stands for "/".
std::vector<Cpu> read_topology(const std::filesystem::path& root, const std::set<int>& allowed);

// Memory that can be had without swapping: the kernel's MemAvailable, or less if a control group that this
// process is in allows less. Nothing if neither is known.
std::optional<worker::Available> read_available_memory(const std::filesystem::path& root);

// "0-2,4" as numbers; stops at the first character that it does not understand.
std::set<int> parse_cpu_list(const std::string& text);

}  // namespace dtrun::cmd
