#include "tests/cuda_on_cpu/nccl_plan.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <regex>
#include <sstream>

namespace cuda_on_cpu {
namespace {

[[noreturn]] void refuse_plan(const char* name, const std::string& value) {
  std::fprintf(stderr, "cuda_on_cpu: %s=%s is unknown (see tests/cuda_on_cpu/nccl_plan.h)\n", name,
               value.c_str());
  std::abort();
}

constexpr const char* kFaultName = "DTRUN_TEST_NCCL_FAULT";

// Not a constant: the plan is read before those of this file are made.
const std::map<std::string, NcclFaultKind>& kinds() {
  static const std::map<std::string, NcclFaultKind> kinds = {
      {"init-absent", NcclFaultKind::kInitAbsent},
      {"init-stuck", NcclFaultKind::kInitStuck},
      {"init-fails", NcclFaultKind::kInitFails},
      {"group-stuck", NcclFaultKind::kGroupStuck},
      {"silent", NcclFaultKind::kSilent},
      {"async-error", NcclFaultKind::kAsyncError},
      {"dies", NcclFaultKind::kDies},
      {"breaks-device", NcclFaultKind::kBreaksDevice},
      {"abort-hangs", NcclFaultKind::kAbortHangs},
      {"abort-busy-hangs", NcclFaultKind::kAbortBusyHangs},
  };
  return kinds;
}

int usual_error(NcclFaultKind kind) {
  return kind == NcclFaultKind::kInitFails      ? ncclSystemError
         : kind == NcclFaultKind::kBreaksDevice ? static_cast<int>(cudaErrorIllegalAddress)
                                                : ncclRemoteError;
}

// Whether this process has the fault at `index` of the plan.
bool claim(std::size_t index) {
  if (nccl_plan.once.empty()) return true;
  const std::string file = nccl_plan.once + (index == 0 ? "" : "." + std::to_string(index));
  const int fd = open(file.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

}  // namespace

std::vector<NcclFault> nccl_faults_of(const std::string& text) {
  static const std::regex form("([a-z-]+):([0-9]+)(@([0-9]+))?(:([0-9]+))?");
  std::vector<NcclFault> faults;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    std::smatch match;
    if (!std::regex_match(part, match, form) || kinds().count(match[1]) == 0) refuse_plan(kFaultName, part);
    const NcclFaultKind kind = kinds().at(match[1]);
    faults.push_back({kind, std::stoi(match[2]), match[4].matched ? std::stoull(match[4]) : 1,
                      match[6].matched ? std::stoi(match[6]) : usual_error(kind)});
  }
  return faults;
}

NcclPlan nccl_plan_of_environment() {
  NcclPlan plan;
  if (const char* const text = std::getenv(kFaultName)) plan.faults = nccl_faults_of(text);
  if (const char* const text = std::getenv("DTRUN_TEST_NCCL_FAULT_ONCE")) plan.once = text;
  if (const char* const text = std::getenv("DTRUN_TEST_NCCL_DEATHS")) {
    const std::string deaths = text;
    if (deaths != "some" && deaths != "all" && deaths != "none") refuse_plan("DTRUN_TEST_NCCL_DEATHS", text);
    plan.noticed = deaths == "some" ? Deaths::kSome : deaths == "all" ? Deaths::kAll : Deaths::kNone;
  }
  if (const char* const text = std::getenv("DTRUN_TEST_NCCL_ORDER")) {
    char* end = nullptr;
    plan.seed = std::strtoull(text, &end, 10);
    if (end == text || *end != 0) refuse_plan("DTRUN_TEST_NCCL_ORDER", text);
  }
  return plan;
}

const NcclFault* nccl_fault(NcclFaultKind kind, int rank, std::uint64_t group) {
  for (std::size_t i = 0; i < nccl_plan.faults.size(); ++i) {
    const NcclFault& fault = nccl_plan.faults[i];
    if (fault.kind == kind && fault.rank == rank && fault.group == group && claim(i)) return &fault;
  }
  return nullptr;
}

}  // namespace cuda_on_cpu
