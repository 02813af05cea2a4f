#include "tests/cuda_on_cpu/machine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace cuda_on_cpu {
namespace {

thread_local int current = 0;

std::size_t number_of_environment(const char* name, std::size_t otherwise) {
  const char* const text = std::getenv(name);
  if (!text) return otherwise;
  char* end = nullptr;
  const std::size_t value = std::strtoull(text, &end, 10);
  if (end == text || *end != 0) {
    std::fprintf(stderr, "cuda_on_cpu: %s=%s is not a number\n", name, text);
    std::abort();
  }
  return value;
}

std::vector<int> visible(const char* text, int count) {
  std::vector<int> gpus;
  while (*text != 0) {
    char* end = nullptr;
    const long gpu = std::strtol(text, &end, 10);
    if (end == text || (*end != ',' && *end != 0) || gpu < 0 || gpu >= count) break;
    // One that is named twice makes all of them unusable.
    if (std::find(gpus.begin(), gpus.end(), static_cast<int>(gpu)) != gpus.end()) return {};
    gpus.push_back(static_cast<int>(gpu));
    text = *end == ',' ? end + 1 : end;
  }
  return gpus;
}

}  // namespace

Machine machine_of_environment() {
  Machine machine;
  const int count = static_cast<int>(number_of_environment("DTRUN_TEST_GPUS", 1));
  machine.gpus.clear();
  for (int gpu = 0; gpu < count; ++gpu) machine.gpus.push_back(gpu);
  if (const char* const text = std::getenv("CUDA_VISIBLE_DEVICES")) machine.gpus = visible(text, count);
  machine.memory_bytes = number_of_environment("DTRUN_TEST_GPU_MEMORY", machine.memory_bytes);
  return machine;
}

int current_device() { return current; }

void set_current_device(int device) { current = device; }

}  // namespace cuda_on_cpu
