// The kernels for AVX2; compiled with its flags, called only where the processor has it.
#include <immintrin.h>

#define DTRUN_KERNELS avx2
#define DTRUN_KERNELS_NAME "AVX2"
#define DTRUN_VECTOR 8
#define DTRUN_REGISTERS 16
#define DTRUN_FUSED_MULTIPLY_ADD _mm256_fmadd_ps
#include "worker/device/cpu/grouped/kernels_impl.h"
