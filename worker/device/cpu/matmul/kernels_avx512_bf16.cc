// The matmuls with inputs rounded to bf16, for AVX512_BF16; compiled with its flags, called only where the
// processor has it.
#define DTRUN_KERNELS avx512_bf16
#define DTRUN_KERNELS_NAME "AVX512_BF16"
#define DTRUN_VECTOR 16
#define DTRUN_ROWS 14
#define DTRUN_PAIRS 1
#define DTRUN_ACCUMULATE(a, b, sum) asm("vdpbf16ps %1, %2, %0" : "+v"(sum) : "v"(a), "v"(b))
#define DTRUN_ROUND(low, high, to) asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(to) : "v"(low), "v"(high))
#include "worker/device/cpu/matmul/kernels_impl.h"
