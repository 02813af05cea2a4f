// The matmuls for any processor that the build is for, if all of these have fused multiply-add.
#ifdef __aarch64__
#include <arm_neon.h>

#define DTRUN_KERNELS baseline
#define DTRUN_KERNELS_NAME "NEON"
#define DTRUN_VECTOR 4
#define DTRUN_ROWS 12
#define DTRUN_PAIRS 0
#define DTRUN_ACCUMULATE(a, b, sum) sum = vfmaq_f32(sum, a, b)
#include "worker/device/cpu/matmul/kernels_impl.h"
#else
#include "worker/device/cpu/matmul/kernels.h"

namespace dtrun::worker {

template <>
const matmul::Kernels Copies<matmul::Kernels>::baseline = {.instruction_set = "baseline"};

}  // namespace dtrun::worker
#endif
