// The kernels for AVX-512; compiled with its flags, called only where the processor has it.
#include <immintrin.h>

#define DTRUN_KERNELS avx512
#define DTRUN_KERNELS_NAME "AVX-512"
#define DTRUN_VECTOR 16
#define DTRUN_REGISTERS 32
#define DTRUN_FUSED_MULTIPLY_ADD _mm512_fmadd_ps
#include "worker/device/cpu/grouped/kernels_impl.h"
