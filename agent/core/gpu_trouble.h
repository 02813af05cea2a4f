// Explains trouble of a GPU whose worker failed from the kernel's log and the driver, with advice. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/gpu.h"

namespace dtrun {

// An error that NVIDIA's kernel module has reported.
struct Xid {
  std::string pci;  // "0000:5e:00", without the function
  int number = 0;
};

// Parses a line of the kernel's log: "NVRM: Xid (PCI:0000:5e:00): 79, pid=1234, GPU has fallen off the bus."
std::optional<Xid> xid_in(std::string_view line);

// "Xid 79, the GPU has fallen off the bus; drain this node and power-cycle it"; for an Xid that is not in the
// table only the number, and NVIDIA's page on it.
std::string xid_text(int number);

// Lines such as "GPU 3 (0000:5e:00.0): Xid 79, …", each once, without a final newline; empty if nothing is
// known. `xids` since the job began. `before`: as the job began; `now`: nothing if the driver does not
// answer. `pci`: of the worker's GPU; empty: not known, so the lines cover all GPUs.
std::string gpu_trouble(const std::vector<Xid>& xids, const GpuReading& before,
                        const std::optional<GpuReading>& now, const std::string& pci);

}  // namespace dtrun
