#include "agent/core/gpu_release.h"

#include <algorithm>

namespace dtrun::agent {
namespace {

// The first GPU that a process is on.
std::optional<std::size_t> gpu_of(const GpuReading& reading, int pid) {
  for (std::size_t i = 0; i < reading.gpus.size(); ++i) {
    const auto& processes = reading.gpus[i].processes;
    if (std::find(processes.begin(), processes.end(), pid) != processes.end()) return i;
  }
  return std::nullopt;
}

}  // namespace

GpuRelease::Decision GpuRelease::look(const std::optional<GpuReading>& reading, Millis now) {
  Decision decision;
  if (!reading) ended_.clear();
  for (auto worker = ended_.begin(); worker != ended_.end();) {
    const auto [pid, since] = *worker;
    const auto gpu = gpu_of(*reading, pid);
    const bool late = now - since >= kLimit;
    if (gpu && late) {
      const std::string& pci = reading->gpus[*gpu].pci;
      decision.note += (decision.note.empty() ? "" : "\n") + std::string("GPU ") + std::to_string(*gpu) +
                       (pci.empty() ? "" : " (" + pci + ")") + " still has memory of process " +
                       std::to_string(pid) + ", which ended " + std::to_string((now - since) / 1000) +
                       " s ago; the worker that takes its place starts anyway";
    }
    worker = gpu && !late ? std::next(worker) : ended_.erase(worker);
  }
  decision.start = ended_.empty();
  return decision;
}

}  // namespace dtrun::agent
