// The matmuls for AVX-512; compiled with its flags, called only where the processor has it.
#define DTRUN_KERNELS avx512
#define DTRUN_KERNELS_NAME "AVX-512"
#define DTRUN_VECTOR 16
#define DTRUN_ROWS 14
#define DTRUN_PAIRS 0
// In assembly, since GCC 12 moves the sums of an intrinsic between registers and the stack.
#define DTRUN_ACCUMULATE(a, b, sum) asm("vfmadd231ps %1, %2, %0" : "+v"(sum) : "v"(a), "v"(b))
#include "worker/device/cpu/matmul/kernels_impl.h"
