#include "tests/cuda_on_cpu/settings.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace cuda_on_cpu {
namespace {

[[noreturn]] void refuse(const char* name, const std::string& value) {
  std::fprintf(stderr, "cuda_on_cpu: %s=%s is unknown (see tests/cuda_on_cpu/settings.h)\n", name,
               value.c_str());
  std::abort();
}

bool is_no(const char* name) {
  const char* const text = std::getenv(name);
  if (text && std::string(text) != "no") refuse(name, text);
  return text;
}

}  // namespace

Settings settings_of_environment() {
  Settings settings;
  if (const char* const text = std::getenv("DTRUN_TEST_GPU_ORDER")) {
    const std::string order = text, random = "random:";
    if (order == "reverse") {
      settings.threads = settings.blocks = Order::kReverse;
    } else if (order.starts_with(random)) {
      char* end = nullptr;
      settings.seed = std::strtoull(text + random.size(), &end, 10);
      if (*end != 0 || end == text + random.size()) refuse("DTRUN_TEST_GPU_ORDER", order);
      settings.threads = settings.blocks = Order::kRandom;
      settings.streams = Policy::kRandom;
    } else if (order != "forward") {
      refuse("DTRUN_TEST_GPU_ORDER", order);
    }
  }
  if (const char* const text = std::getenv("DTRUN_TEST_GPU_STREAMS")) {
    const std::string streams = text;
    if (streams == "at-once") {
      settings.streams = Policy::kAtOnce;
    } else if (streams == "late") {
      settings.streams = Policy::kAsLateAsPossible;
    } else if (streams == "random") {
      settings.streams = Policy::kRandom;
    } else {
      refuse("DTRUN_TEST_GPU_STREAMS", streams);
    }
  }
  settings.pageable_memory = !is_no("DTRUN_TEST_GPU_PAGEABLE");
  settings.misaligned_products = !is_no("DTRUN_TEST_GPU_MISALIGNED");
  return settings;
}

}  // namespace cuda_on_cpu
