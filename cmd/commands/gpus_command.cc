#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "agent/gpu/read_gpus.h"
#include "agent/gpu/reading_json.h"
#include "cmd/commands/answer.h"
#include "cmd/commands/commands.h"
#include "cmd/options/values.h"
#include "proto/core/exit_codes.h"
#include "proto/core/text.h"

namespace dtrun::cmd {
namespace {

constexpr OptionEntry kOptionsOfGpus[] = {
    {.name = "json", .help = "All that the driver reports, as a line of JSON"},
    {.name = "on_request", .help = "As --json, for each line of standard input, until its end"},
    kColorOption,
    kHelpOption};

// "0", "-" for one that CUDA does not show.
std::string cuda_index(const std::vector<Gpu>& shown, int number) {
  for (const Gpu& gpu : shown)
    if (gpu.number == number) return std::to_string(gpu.index);
  return "-";
}

std::string table_of(const GpuReading& reading, const std::vector<Gpu>& shown) {
  std::vector<std::vector<std::string>> rows{
      {"GPU", "CUDA", "name", "memory", "in use", "address", "NUMA node"}};
  for (std::size_t i = 0; i < reading.gpus.size(); ++i) {
    const PhysicalGpu& gpu = reading.gpus[i];
    const bool known = gpu.memory > 0;
    rows.push_back({std::to_string(i), cuda_index(shown, static_cast<int>(i)),
                    gpu.name + (gpu.mig ? " (MIG mode)" : "") + (gpu.lost ? " (lost)" : ""),
                    known ? in_gibibytes(gpu.memory) : "-", known ? in_gibibytes(gpu.memory_used) : "-",
                    gpu.pci.empty() ? "-" : gpu.pci,
                    gpu.numa_node >= 0 ? std::to_string(gpu.numa_node) : "-"});
  }
  return join(in_columns(rows), "\n") + "\n";
}

int show(const GpuReading& reading) {
  const GpuSight result = sight_of(reading, std::getenv("CUDA_VISIBLE_DEVICES"));
  std::string text = reading.gpus.empty() ? "" : table_of(reading, result.gpus);
  if (!result.driver.empty()) {
    text += "driver " + result.driver +
            (result.cuda > 0 ? ", for CUDA " + cuda_version_text(result.cuda) + " and older" : "") + "\n";
  }
  if (result.gpus.empty()) text += "no GPU for programs that start here: " + result.why_none + "\n";
  return answer(text);
}

int run_gpus(const Invocation& invocation) {
  const Values<kOptionsOfGpus> values{invocation.values};
  const agent::GpuReader reader(std::getenv("DTRUN_CUDA_LIBRARY_PATH"));
  if (!values.flag("on_request"))
    return values.flag("json") ? answer(agent::to_json(reader.read()) + "\n") : show(reader.read());
  for (std::string line; std::getline(std::cin, line);) {
    if (const int code = answer(agent::to_json(reader.read()) + "\n"); code != kExitOk) return code;
  }
  return kExitOk;
}

}  // namespace

constinit const Command kGpusCommand{
    .name = "gpus",
    .summary = "List the GPUs of this machine as dtrun counts them",
    .description =
        "A line for each GPU: its number as nvidia-smi counts, the number by which CUDA would show it to a "
        "program "
        "that starts here (CUDA_VISIBLE_DEVICES hides and orders GPUs; - is a hidden one), memory, PCI "
        "address and "
        "NUMA node. The driver is asked by its management library; no GPU is opened.",
    .options = kOptionsOfGpus,
    .rare = true,
    .run = run_gpus};

}  // namespace dtrun::cmd
