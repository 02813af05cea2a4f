// The kernels for AVX-512; compiled with its flags, called only where the processor has it.
#define DTRUN_KERNELS avx512
#define DTRUN_KERNELS_NAME "AVX-512"
#define DTRUN_VECTOR 16
#include "worker/device/cpu/planned/kernels_impl.h"
