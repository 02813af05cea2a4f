#include "worker/config/bf16.h"

namespace dtrun::worker {
namespace {

#ifdef __x86_64__
constexpr char kMissing[] = "AVX512_BF16";
bool has_bf16() { return __builtin_cpu_supports("avx512bf16"); }
const char* largest_set() {
  if (__builtin_cpu_supports("avx512f")) return "AVX-512";
  return __builtin_cpu_supports("avx2") ? "AVX2" : "SSE2";
}
#else
constexpr char kMissing[] = "x86-64's AVX512_BF16";
bool has_bf16() { return false; }
const char* largest_set() { return "another architecture"; }
#endif

}  // namespace

bool processor_has_bf16() { return has_bf16(); }

std::string bf16_refusal() {
  const std::string missing = std::string("/train/bf16: true needs a processor with ") + kMissing + " or AMX";
  constexpr char kWayOut[] = "leave it out or set it to false, for fp32";
  if (has_bf16())
    return missing + ", which DTRUN_CPU in the environment leaves out; unset that, or " + kWayOut;
  return missing + ", and this one has no more than " + largest_set() + "; " + kWayOut;
}

}  // namespace dtrun::worker
