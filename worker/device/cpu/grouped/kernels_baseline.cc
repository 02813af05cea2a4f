// The kernels for any processor that the build is for.
#ifdef __aarch64__
#include <arm_neon.h>
#endif

#define DTRUN_KERNELS baseline
#define DTRUN_KERNELS_NAME "baseline"
#define DTRUN_VECTOR 4
#ifdef __aarch64__
#define DTRUN_REGISTERS 32
#define DTRUN_FUSED_MULTIPLY_ADD(a, b, c) vfmaq_f32(c, a, b)
#else
#define DTRUN_REGISTERS 16
#endif
#include "worker/device/cpu/grouped/kernels_impl.h"
