#include "tests/cuda_on_cpu/settings.h"

#include <cstdio>
#include <cstdlib>

namespace cuda_on_cpu {

Settings settings_of_environment() {
  Settings settings;
  if (const char* const text = std::getenv("DTRUN_TEST_GPU_ORDER")) {
    if (std::sscanf(text, "random:%lu", &settings.seed) != 1) {
      std::fprintf(stderr, "cuda_on_cpu: DTRUN_TEST_GPU_ORDER=%s is not random:SEED\n", text);
      std::abort();
    }
    settings.threads = settings.blocks = Order::kRandom;
    settings.streams = Policy::kRandom;
  }
  return settings;
}

}  // namespace cuda_on_cpu
