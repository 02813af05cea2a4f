#include "tests/cuda_on_cpu/faults.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "tests/cuda_on_cpu/errors.h"

namespace cuda_on_cpu {
namespace {

Faults faults_of_environment() {
  const char* const text = std::getenv("DTRUN_TEST_GPU_FAULT");
  const char* const file = std::getenv("DTRUN_TEST_GPU_FAULT_ONCE");
  Faults faults;
  if (!text || (file && !is_first_process(file))) return faults;
  int error = 0;
  if (std::sscanf(text, "launch:%lu:%d", &faults.launch, &error) == 2) {
    faults.launch_error = static_cast<cudaError_t>(error);
  } else if (std::sscanf(text, "every-call:%d", &error) == 1) {
    faults.every_call = static_cast<cudaError_t>(error);
  } else if (std::sscanf(text, "capture:%d", &error) == 1) {
    faults.capture = static_cast<cudaError_t>(error);
  } else {
    std::fprintf(stderr, "cuda_on_cpu: unknown fault %s (see tests/cuda_on_cpu/faults.h)\n", text);
    std::abort();
  }
  return faults;
}

struct Plan {
  std::mutex mutex;  // guards all below
  Faults faults = faults_of_environment();
  std::uint64_t launches = 0;
};

Plan& plan() {
  static Plan& plan = *new Plan;
  return plan;
}

}  // namespace

bool is_first_process(const std::string& file) {
  const int fd = open(file.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

void plan_faults(const Faults& faults) {
  const std::lock_guard lock(plan().mutex);
  plan().faults = faults;
  plan().launches = 0;
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

cudaError_t fault_of_host_register() {
  const std::lock_guard lock(plan().mutex);
  return plan().faults.host_register;
}

cudaError_t fault_of_launch() {
  const std::lock_guard lock(plan().mutex);
  return ++plan().launches == plan().faults.launch ? plan().faults.launch_error : cudaSuccess;
}

}  // namespace cuda_on_cpu
