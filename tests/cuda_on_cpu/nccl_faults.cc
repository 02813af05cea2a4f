#include "tests/cuda_on_cpu/nccl_faults.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <regex>
#include <sstream>
#include <vector>

#include "tests/cuda_on_cpu/faults.h"

namespace cuda_on_cpu {
namespace {

struct NcclFault {
  std::string kind;
  int rank = 0;
  std::uint64_t group = 1;
  int error = 0;  // ncclResult_t, or cudaError_t
};

std::vector<NcclFault> read_faults(const std::string& text) {
  static const std::regex form(
      "(init-fails|init-stuck|group-stuck|silent|async-error|dies|breaks-device|abort-hangs)"
      ":([0-9]+)(@([0-9]+))?(:([0-9]+))?");
  std::vector<NcclFault> faults;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    std::smatch match;
    if (!std::regex_match(part, match, form)) {
      std::fprintf(stderr, "cuda_on_cpu: unknown fault %s (see tests/cuda_on_cpu/nccl_faults.h)\n",
                   part.c_str());
      std::abort();
    }
    const int usual =
        match[1] == "breaks-device" ? static_cast<int>(cudaErrorIllegalAddress) : ncclRemoteError;
    faults.push_back({match[1], std::stoi(match[2]), match[4].matched ? std::stoull(match[4]) : 1,
                      match[6].matched ? std::stoi(match[6]) : usual});
  }
  return faults;
}

std::string variable(const char* name) {
  const char* const text = std::getenv(name);
  return text ? text : "";
}

struct Plan {
  std::mutex mutex;  // guards the faults
  std::vector<NcclFault> faults = read_faults(variable("DTRUN_TEST_NCCL_FAULT"));
  const std::string once = variable("DTRUN_TEST_NCCL_FAULT_ONCE");
};

Plan& plan() {
  static Plan& plan = *new Plan;
  return plan;
}

}  // namespace

void plan_nccl_faults(const std::string& text) {
  const std::lock_guard lock(plan().mutex);
  plan().faults = read_faults(text);
}

std::optional<int> nccl_fault(const std::string& kind, int rank, std::uint64_t group) {
  const std::lock_guard lock(plan().mutex);
  for (std::size_t i = 0; i < plan().faults.size(); ++i) {
    const NcclFault& fault = plan().faults[i];
    if (fault.kind != kind || fault.rank != rank || fault.group != group) continue;
    const std::string file = plan().once + (i == 0 ? "" : "." + std::to_string(i));
    if (plan().once.empty() || is_first_process(file)) return fault.error;
  }
  return {};
}

}  // namespace cuda_on_cpu
