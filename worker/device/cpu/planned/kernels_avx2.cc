// The kernels for AVX2; compiled with its flags, called only where the processor has it.
#define DTRUN_KERNELS avx2
#define DTRUN_KERNELS_NAME "AVX2"
#define DTRUN_VECTOR 8
#include "worker/device/cpu/planned/kernels_impl.h"
