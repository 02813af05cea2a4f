// The instruction set that oneDNN's kernels use on this processor.
#include <cstdio>
#include <dnnl.hpp>
#include <string>

#include "worker/base/runnable.h"
#include "worker/device/cpu/onednn/matmul.h"

namespace dtrun::worker::onednn {
namespace {

struct NamedSet {
  dnnl::cpu_isa set;
  const char* name;
};

// The names of ONEDNN_MAX_CPU_ISA.
constexpr NamedSet kNamedSets[] = {
    {dnnl::cpu_isa::sse41, "SSE41"},
    {dnnl::cpu_isa::avx, "AVX"},
    {dnnl::cpu_isa::avx2, "AVX2"},
    {dnnl::cpu_isa::avx2_vnni, "AVX2_VNNI"},
    {dnnl::cpu_isa::avx512_core, "AVX512_CORE"},
    {dnnl::cpu_isa::avx512_core_vnni, "AVX512_CORE_VNNI"},
    {dnnl::cpu_isa::avx512_core_bf16, "AVX512_CORE_BF16"},
    {dnnl::cpu_isa::avx512_core_amx, "AVX512_CORE_AMX"},
#if DNNL_VERSION_MAJOR >= 3
    {dnnl::cpu_isa::avx2_vnni_2, "AVX2_VNNI_2"},
    {dnnl::cpu_isa::avx512_core_fp16, "AVX512_CORE_FP16"},
    {dnnl::cpu_isa::avx512_core_amx_fp16, "AVX512_CORE_AMX_FP16"},
#endif
};

// A set has the bits of all sets that it includes.
bool has(dnnl::cpu_isa wanted) {
  const auto bits = static_cast<unsigned>(wanted);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) == bits;
}

}  // namespace

std::string instruction_set() {
  const dnnl::cpu_isa here = dnnl::get_effective_cpu_isa();
  for (const NamedSet& named : kNamedSets)
    if (named.set == here) return named.name;
  char text[32];
  std::snprintf(text, sizeof text, "instruction set 0x%x", static_cast<unsigned>(here));
  return text;
}

bool has_amx() { return has(dnnl::cpu_isa::avx512_core_amx) && is_allowed("amx"); }

}  // namespace dtrun::worker::onednn
