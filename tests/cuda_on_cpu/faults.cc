#include "tests/cuda_on_cpu/faults.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <sstream>
#include <vector>

#include "tests/cuda_on_cpu/errors.h"

namespace cuda_on_cpu {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

Faults faults_of_environment() {
  const char* const text = std::getenv("DTRUN_TEST_GPU_FAULT");
  if (!text) return {};
  const char* const file = std::getenv("DTRUN_TEST_GPU_FAULT_ONCE");
  return file && !is_first_process(file) ? Faults{} : faults_of(text);
}

struct Plan {
  std::mutex mutex;  // guards all below
  Faults faults = faults_of_environment();
  std::uint64_t allocations = 0, host_allocations = 0, launches = 0;
};

Plan& plan() {
  static Plan& plan = *new Plan;
  return plan;
}

}  // namespace

Faults faults_of(const std::string& text) {
  Faults faults;
  for (const std::string& fault : split(text, ',')) {
    const std::vector<std::string> parts = split(fault, ':');
    const auto number = [&](std::size_t i) { return std::strtoull(parts[i].c_str(), nullptr, 10); };
    if (parts.size() == 2 && parts[0] == "allocation" && number(1) > 0) {
      faults.allocation = number(1);
    } else if (parts.size() == 2 && parts[0] == "host-allocation" && number(1) > 0) {
      faults.host_allocation = number(1);
    } else if (parts.size() == 3 && parts[0] == "launch" && number(1) > 0 && number(2) > 0) {
      faults.launch = number(1);
      faults.launch_error = static_cast<cudaError_t>(number(2));
    } else if (parts.size() == 2 && parts[0] == "host-register" && number(1) > 0) {
      faults.host_register = static_cast<cudaError_t>(number(1));
    } else if (parts.size() == 2 && parts[0] == "capture" && number(1) > 0) {
      faults.capture = static_cast<cudaError_t>(number(1));
    } else if (parts.size() == 2 && parts[0] == "every-call" && number(1) > 0) {
      faults.every_call = static_cast<cudaError_t>(number(1));
    } else {
      std::fprintf(stderr, "cuda_on_cpu: unknown fault %s (see tests/cuda_on_cpu/faults.h)\n", fault.c_str());
      std::abort();
    }
  }
  return faults;
}

bool is_first_process(const std::string& file) {
  const int fd = open(file.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

void plan_faults(const Faults& faults) {
  const std::lock_guard lock(plan().mutex);
  plan().faults = faults;
  plan().allocations = plan().host_allocations = plan().launches = 0;
  mend_device();
}

cudaError_t fault_of_call() {
  const std::lock_guard lock(plan().mutex);
  return plan().faults.every_call;
}

cudaError_t fault_of_capture() {
  const std::lock_guard lock(plan().mutex);
  Faults& faults = plan().faults;
  if (faults.captures == 0) return cudaSuccess;
  --faults.captures;
  return faults.capture;
}

cudaError_t fault_of_allocation() {
  const std::lock_guard lock(plan().mutex);
  return ++plan().allocations == plan().faults.allocation ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t fault_of_host_allocation() {
  const std::lock_guard lock(plan().mutex);
  return ++plan().host_allocations == plan().faults.host_allocation ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t fault_of_host_register() {
  const std::lock_guard lock(plan().mutex);
  return plan().faults.host_register;
}

cudaError_t fault_of_launch() {
  const std::lock_guard lock(plan().mutex);
  return ++plan().launches == plan().faults.launch ? plan().faults.launch_error : cudaSuccess;
}

}  // namespace cuda_on_cpu
