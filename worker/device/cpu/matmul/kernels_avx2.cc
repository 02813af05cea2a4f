// The matmuls for AVX2; compiled with its flags, called only where the processor has it.
#define DTRUN_KERNELS avx2
#define DTRUN_KERNELS_NAME "AVX2"
#define DTRUN_VECTOR 8
#define DTRUN_ROWS 6
#define DTRUN_PAIRS 0
// In assembly, since GCC 12 moves the sums of an intrinsic between registers and the stack.
#define DTRUN_ACCUMULATE(a, b, sum) asm("vfmadd231ps %1, %2, %0" : "+x"(sum) : "x"(a), "x"(b))
#include "worker/device/cpu/matmul/kernels_impl.h"
