// The kernels for any processor that the build is for.
#define DTRUN_KERNELS baseline
#define DTRUN_KERNELS_NAME "baseline"
#define DTRUN_VECTOR 4
#ifdef __aarch64__
#define DTRUN_REGISTERS 32
#else
#define DTRUN_REGISTERS 16
#endif
#include "worker/device/cpu/grouped/kernels_impl.h"
